"""What the driver's JVM is started with must be something that Java takes, whatever the environment says beside it."""

from __future__ import annotations

import os
import subprocess

import pytest

from tidegate.java import need_java
from tidegate.runtime.session import JAVA_READS, driver_options


@pytest.mark.parametrize("brief", [True, False])
@pytest.mark.parametrize(
    "said",
    [
        {},
        {"JDK_JAVA_OPTIONS": "-Xlog:disable -XX:+UseG1GC"},
        {"JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC"},
        {"_JAVA_OPTIONS": "-XX:+UseParallelGC -Xss2m"},
    ],
    ids=lambda said: next(iter(said), "nothing"),
)
def test_java_starts_with_them_whichever_collector_the_environment_asks_for(said: dict[str, str], brief: bool) -> None:
    java = need_java()
    options = driver_options(said, brief=brief).split()
    environment = {name: value for name, value in os.environ.items() if name not in JAVA_READS} | said
    ended = subprocess.run([java, *options, "-version"], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len([option for option in options if option.endswith("GC")]) == (0 if said else 1)
