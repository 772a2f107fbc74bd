"""Maven repositories, asked by Apache Ivy, which lies inside PySpark and is itself a command: no Maven is needed.

Which repository is asked, the user has often said already: a mirror in ``~/.m2/settings.xml``. ``TIDEGATE_MAVEN``
says it for us alone. Passwords go into a settings file that only this user can read and that lives as long as Ivy runs.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from tidegate.errors import MachineError
from tidegate.java import need_java

_LONGEST = 900
_TROUBLE = re.compile(r"(?:Host|Server) .*|.*(?:timed out|refused|\b40[13]\b).*")


@dataclass(frozen=True)
class Repository:
    """Where to ask, and as whom. No address means Maven Central, which Ivy knows by itself."""

    address: str = ""
    user: str = ""
    password: str = ""


def where() -> str:
    """The repository in words, without secrets."""
    address = repository().address
    return f"the repository {urlsplit(address).hostname or address}" if address else "Maven Central"


def retrieve(coordinates: Sequence[str], scratch: Path, *, transitive: bool = False) -> Path:
    """Fetch files into a folder inside `scratch`, under the names that repositories give them.

    With `transitive`, fetch all that they need too, under the names ``organisation=artifact=version.jar``. What the
    repository does not have is not there afterwards: whoever asked for it knows best what to say.
    """
    asked = repository()
    draft, settings = scratch / "ivy.xml", scratch / "settings.xml"
    draft.write_text(_module(coordinates, transitive), "utf-8")
    settings.touch(mode=0o600)
    settings.write_text(_settings(asked, transitive), "utf-8")
    command = [str(need_java("Ivy, which fetches jars,")), "-jar", str(_ivy()), "-settings", str(settings)]
    named = "[organisation]=[artifact]=[revision].[ext]" if transitive else "[artifact]-[revision](-[classifier]).[ext]"
    command += ["-ivy", str(draft), "-cache", str(scratch / "cache"), "-retrieve", str(scratch / "found" / named)]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_LONGEST, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise MachineError(f"{where()} took more than {_LONGEST // 60} minutes", hint="try again") from error
    finally:
        settings.unlink()
    if done.returncode and (trouble := _TROUBLE.search(done.stdout)):
        raise MachineError(
            f"jars cannot be fetched from {where()}: {trouble[0].strip()[:300]}",
            hint="set TIDEGATE_MAVEN to a Maven repository that can be reached, or TIDEGATE_JARS to a folder with jars",
        )
    return scratch / "found"


def repository() -> Repository:
    """TIDEGATE_MAVEN, else the user's mirror of Maven Central, else Maven Central."""
    given = os.environ.get("TIDEGATE_MAVEN")
    found = Repository(given) if given else _mirror(Path.home() / ".m2" / "settings.xml")
    parts = urlsplit(found.address)
    if not parts.username:
        return found
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return Repository(bare, unquote(parts.username), unquote(parts.password or ""))


def _mirror(path: Path) -> Repository:
    try:
        root = ElementTree.parse(path).getroot()
    except FileNotFoundError:
        return Repository()
    except (OSError, ElementTree.ParseError) as error:
        raise MachineError(f"{path} cannot be read: {error}", hint="mend it, or set TIDEGATE_MAVEN") from error
    for mirror in root.iterfind("{*}mirrors/{*}mirror"):
        if not _stands_for_central(_text(mirror, "mirrorOf")) or _text(mirror, "blocked") == "true":
            continue
        address = _text(mirror, "url")
        for server in root.iterfind("{*}servers/{*}server"):
            if _text(server, "id") == _text(mirror, "id"):
                return Repository(address, _text(server, "username"), _text(server, "password"))
        return Repository(address)
    return Repository()


def _stands_for_central(mirror_of: str) -> bool:
    names = {name.strip() for name in mirror_of.split(",")}
    return "!central" not in names and bool(names & {"*", "central", "external:*"})


def _text(element: ElementTree.Element, name: str) -> str:
    text = (element.findtext(f"{{*}}{name}") or "").strip()
    return re.sub(r"\$\{env\.(\w+)\}", lambda match: os.environ.get(match[1], ""), text)


def _module(coordinates: Sequence[str], transitive: bool) -> str:
    lines = []
    for coordinate in coordinates:
        organisation, name, version, *rest = map(quoteattr, coordinate.split(":"))
        extension, classifier = rest or ('"jar"', None)
        m2 = f" m:classifier={classifier}" if classifier else ""
        conf = "default-&gt;master,runtime" if transitive else "default-&gt;*"
        artifact = "" if transitive else f"<artifact name={name} type={extension} ext={extension}{m2}/>"
        lines.append(
            f'<dependency org={organisation} name={name} rev={version} conf="{conf}" '
            f'transitive="{str(transitive).lower()}">{artifact}</dependency>'
        )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="tidegate" module="jars"/><configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _settings(asked: Repository, transitive: bool) -> str:
    root = f" root={quoteattr(asked.address)}" if asked.address else ""
    credentials = (
        f"<credentials host={quoteattr(urlsplit(asked.address).hostname or '')} "
        f"username={quoteattr(asked.user)} passwd={quoteattr(asked.password)}/>"
        if asked.user
        else ""
    )
    # Several versions of one jar may be wanted side by side: the broker has its own Kafka client.
    conflicts = "latest-revision" if transitive else "all"
    return (
        f'<ivysettings><settings defaultResolver="maven" defaultConflictManager="{conflicts}"/>{credentials}<resolvers>'
        f'<ibiblio name="maven" m2compatible="true" usepoms="{str(transitive).lower()}"{root}/>'
        "</resolvers></ivysettings>"
    )


def _ivy() -> Path:
    pyspark = find_spec("pyspark")
    found = sorted(Path(next(iter(pyspark.submodule_search_locations or ()))).glob("jars/ivy-*.jar")) if pyspark else []
    if not found:
        raise MachineError("PySpark, whose Ivy fetches jars, is not installed", hint='pip install "pyspark>=4.2,<4.4"')
    return found[-1]
