"""Hide Spark's start-up messages, which would otherwise seem to concern this run.

Launcher, JVM and log4j write them before any log level takes effect. So the JVM starts with a pipe as its standard
error, and all other lines are passed on.
"""

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_CHATTER = re.compile(
    rb"Using incubator modules: jdk\.incubator\.vector|Using Spark's default log4j profile|Setting default log level to"
    rb"|Setting Spark log level to|To adjust logging level use sc\.setLogLevel|Unable to load native-hadoop library"
    rb"|Service 'SparkUI' could not bind|resolves to a loopback address|Set SPARK_LOCAL_IP if you need to bind"
    rb"|package sun\.security\.action not in java\.base"
)


@contextmanager
def quiet(*, enabled: bool = True) -> Iterator[None]:
    """Filter the standard error of processes started in the block, for as long as they live."""
    if not enabled:
        yield
        return
    sys.stderr.flush()
    shown = os.dup(2)
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    threading.Thread(target=_pass_on, args=(reading, shown), name="firn stderr", daemon=True).start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(shown, 2)


def _pass_on(reading: int, shown: int) -> None:
    """Pass lines on until the last process that holds the other end is gone."""
    with os.fdopen(reading, "rb") as lines, os.fdopen(shown, "wb", buffering=0) as out:
        for line in lines:
            if not _CHATTER.search(line):
                out.write(line)
