"""HDFS: a NameNode and a DataNode, the daemons of a real cluster with one node each, started and ended together.

One jar is fetched; the rest of Hadoop, and its logging, lies inside PySpark. Blocks have one replica here, whatever
number a client asks for. Permissions are off: anybody on this machine may write anywhere.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen
from xml.sax.saxutils import escape

from tidegate import jars
from tidegate.dev import together
from tidegate.dev.server import HOST, Server
from tidegate.errors import MachineError
from tidegate.java import need_java

_WHO = "HDFS"
_DAEMONS = "org.apache.hadoop.hdfs.server"
# What PySpark has of the daemons: the client's half of Hadoop, of the version of the jar that is fetched, and logging.
_OF_PYSPARK = (
    "hadoop-client-api-{version}.jar",
    "hadoop-client-runtime-{version}.jar",
    "slf4j-api-*.jar",
    "jcl-over-slf4j-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "log4j-1.2-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
)
_LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1} %m%n%ex
"""


class Hdfs(Server):
    kind = "hdfs"
    ports = 5  # the NameNode's and its web server's; the DataNode's for data, for calls, and its web server's

    def prepare(self, say: Callable[[str], None]) -> None:
        need_java(_WHO)
        _of_pyspark()
        if jars.missing(["hdfs"]):
            say("fetching HDFS (56 MB)")
        jars.fetch(["hdfs"])

    def command(self, ports: list[int]) -> list[str]:
        self._write_settings(ports)
        # What a web server that was killed has left of itself.
        shutil.rmtree(self.folder / "tmp", ignore_errors=True)
        (self.folder / "tmp").mkdir()
        if not any((self.folder / "data" / "name" / "current").glob("fsimage_*.md5")):
            shutil.rmtree(self.folder / "data", ignore_errors=True)  # what was interrupted, before anybody wrote
            format_ = [f"{_DAEMONS}.namenode.NameNode", "-format", "-nonInteractive"]
            self.run([*self._java(), *format_], "format its data folder")
        name_node = [*self._java(), f"{_DAEMONS}.namenode.NameNode"]
        data_node = [*self._java(), f"{_DAEMONS}.datanode.DataNode"]
        return [sys.executable, "-I", together.__file__, *name_node, "--", *data_node]

    def answers(self, port: int) -> bool:
        """Whether it takes writes: the NameNode has left its safe mode, and knows a DataNode that has room."""
        known = self._state()
        if known is None or known.ports[0] != port:
            return False
        bean = "Hadoop:service=NameNode,name=FSNamesystemState"
        with urlopen(f"http://{HOST}:{known.ports[1]}/jmx?qry={bean}", timeout=5) as answer:
            found = json.load(answer)["beans"]
        return any(state["FSState"] == "Operational" and state["CapacityRemaining"] > 0 for state in found)

    def address(self, port: int) -> str:
        return f"hdfs://{HOST}:{port}"

    def environment(self, port: int) -> dict[str, str]:
        return {"HDFS_URL": self.address(port)}

    def _write_settings(self, ports: list[int]) -> None:
        names, names_web, blocks, blocks_calls, blocks_web = (f"{HOST}:{port}" for port in ports)
        settings = {
            "fs.defaultFS": f"hdfs://{names}",
            "dfs.namenode.rpc-address": names,
            "dfs.namenode.http-address": names_web,
            "dfs.datanode.address": blocks,
            "dfs.datanode.ipc.address": blocks_calls,
            "dfs.datanode.http.address": blocks_web,
            "dfs.datanode.hostname": HOST,
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.namenode.name.dir": (self.folder / "data" / "name").as_uri(),
            "dfs.datanode.data.dir": (self.folder / "data" / "blocks").as_uri(),
            "dfs.replication": "1",
            "dfs.permissions.enabled": "false",
            # It takes writes as soon as its one DataNode has reported all blocks, not half a minute later.
            "dfs.namenode.safemode.min.datanodes": "1",
            "dfs.namenode.safemode.extension": "0",
            # The DataNode comes first. It asks again at once, and does not give up and sleep for five seconds.
            "ipc.client.connect.retry.interval": "200",
            "ipc.client.connect.max.retries": "600",
        }
        properties = "".join(
            f"<property><name>{name}</name><value>{escape(value)}</value></property>\n"
            for name, value in settings.items()
        )
        conf = self.folder / "conf"
        conf.mkdir(exist_ok=True)
        (conf / "hdfs-site.xml").write_text(f"<configuration>\n{properties}</configuration>\n", "utf-8")
        (conf / "log4j2.properties").write_text(_LOGGING)
        # Empty, and found before those in the jar: unpacking those takes four seconds, for pages nobody looks at.
        for pages in ("hdfs", "datanode", "static"):
            (conf / "webapps" / pages).mkdir(parents=True, exist_ok=True)

    def _java(self) -> list[str]:
        path = [self.folder / "conf", *jars.fetch(["hdfs"]), *_of_pyspark()]
        return [
            str(need_java(_WHO)),
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            f"-Djava.io.tmpdir={self.folder / 'tmp'}",
            "-cp",
            os.pathsep.join(map(str, path)),
        ]


def _of_pyspark() -> list[Path]:
    """The jars of PySpark that the daemons run with."""
    version = jars.of(["hdfs"])[0].coordinate.split(":")[2]
    pyspark = find_spec("pyspark")
    folder = Path(next(iter(pyspark.submodule_search_locations or ()), "")) / "jars" if pyspark else Path()
    found = []
    for pattern in _OF_PYSPARK:
        name = pattern.format(version=version)
        files = sorted(folder.glob(name))
        if not files:
            raise MachineError(
                f"HDFS {version} runs with {name} of PySpark, which is not in {folder}",
                hint='pip install "pyspark==4.2.0", whose Hadoop is of that version',
            )
        found.append(files[-1])
    return found
