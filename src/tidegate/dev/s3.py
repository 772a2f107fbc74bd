"""An object store that speaks S3: S3Proxy, with the bucket `tidegate` in a folder.

Of several who create one object at once (`If-None-Match: *`) exactly one succeeds: S3Proxy gives a finished object its
name with a hard link, which the file system grants once.

It keeps what is being uploaded beside the object, as `NAME-UUID`, and lists it. When it is killed meanwhile, that stays
and would be an object for ever, which S3 never shows; so it is swept before the next start.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

from tidegate import jars
from tidegate.dev.server import HOST, Server
from tidegate.java import need_java

BUCKET = "tidegate"
ACCESS_KEY = "tidegate"
SECRET_KEY = "tidegate-secret"  # of a server that only this machine reaches
REGION = "us-east-1"

_WHO = "The S3 server"
_PROPERTIES = """\
s3proxy.endpoint=http://{host}:{port}
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={access}
s3proxy.credential={secret}
jclouds.provider=filesystem
jclouds.filesystem.basedir={data}
"""
_DRAFT = re.compile(r"(.+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class S3(Server):
    kind = "s3"

    def prepare(self, say: Callable[[str], None]) -> None:
        need_java(_WHO)
        if absent := jars.missing(["s3"]):
            say(f"fetching {len(absent)} jars of the S3 server")
        jars.fetch(["s3"])
        # A folder that others may read would be a bucket that is read without a key.
        (self.folder / "data" / BUCKET).mkdir(mode=0o700, parents=True, exist_ok=True)
        sweep(self.folder / "data")

    def command(self, ports: list[int]) -> list[str]:
        settings = self.folder / "s3proxy.conf"
        settings.write_text(
            _PROPERTIES.format(
                host=HOST, port=ports[0], access=ACCESS_KEY, secret=SECRET_KEY, data=self.folder / "data"
            )
        )
        return [
            str(need_java(_WHO)),
            "-Xmx512m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
            "-Dorg.slf4j.simpleLogger.showThreadName=false",
            # S3Proxy turns what is written to stderr into lines of the log: a log on stderr would never end.
            "-Dorg.slf4j.simpleLogger.logFile=System.out",
            "-cp",
            os.pathsep.join(map(str, jars.fetch(["s3"]))),
            "org.gaul.s3proxy.Main",
            "--properties",
            str(settings),
        ]

    def answers(self, port: int) -> bool:
        with urlopen(f"{self.address(port)}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)

    def address(self, port: int) -> str:
        return f"http://{HOST}:{port}"

    def environment(self, port: int) -> dict[str, str]:
        return {
            "S3_ENDPOINT": self.address(port),
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
        }


def sweep(data: Path) -> None:
    """Remove what uploads have left that were under way when the server was killed."""
    for folder, _, names in os.walk(data):
        for name in names:
            if (match := _DRAFT.fullmatch(name)) and _is_draft(Path(folder) / name, Path(folder) / match[1]):
                (Path(folder) / name).unlink()


def _is_draft(file: Path, finished: Path) -> bool:
    """Whether a file is no object: it has not got its hash yet, or it is another name of the object it became."""
    with suppress(OSError):
        if file.samefile(finished):
            return True
    try:
        return "user.user.content-md5" not in os.listxattr(file)
    except (OSError, AttributeError):  # this file system, or this operating system, keeps no attributes
        return False
