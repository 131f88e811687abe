"""Firn's Spark session: a scheduler for Python workers that needs no Iceberg jar, catalog or credentials."""

import os
import shutil
import sys
import uuid
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from firnlake.engine.reach import CONNECT, is_local, obstacle, shown, within
from firnlake.engine.spark import reason
from firnlake.errors import RefusedError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


START_SECONDS = 300
"""Default of FIRN_SPARK_START_SECONDS."""
SERVER_FOLDER = "FIRN_SPARK_SERVER"
SESSION = "session_id="
"""Parameter of the address of a Spark Connect server: the session that all who use the address share."""
_RETRIES, _LONGEST_WAIT_MS = 8, 10_000
"""A call to a Spark Connect server that has died fails after 45 s, where Spark's own client tries for ten minutes."""
_MOST_SESSIONS = 100
_DAY = 86_400
_LOGGING = Path(__file__).with_name("log4j2.properties")


def start(name: str) -> "SparkSession":
    """Return the Spark session of this process; start a session with the name ``name`` if there is none.

    If ``SPARK_REMOTE`` is set, it names a Spark Connect server. Otherwise FIRN_SPARK_SERVER is the folder of a server
    that commands on this machine share. If neither is set, the master is the one that ``spark-submit`` was given, or
    FIRN_SPARK_MASTER, or Spark's own default (``local[*]``). Raises RefusedError when Spark is not installed, and
    UnavailableError when Spark has not started within FIRN_SPARK_START_SECONDS.
    """
    if lacks := lacking():
        raise RefusedError(f"Spark can't start: {lacks}; allowed: install it, or --engine local, which needs no Spark")
    address = os.environ.get("SPARK_REMOTE") or os.environ.get("FIRN_SPARK_MASTER") or "local[*]"

    def started() -> "SparkSession":
        if hindered := obstacle(address):
            raise UnavailableError(hindered)
        if address.startswith(CONNECT):
            return _connected(address)
        if folder := _server_folder():
            from firnlake.engine.server import join

            return _connected(join(folder, name).address)
        return start_here(name)

    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return within(_start_seconds(), f"starting Spark on {shown(address)}", started)
    except (PySparkException, Py4JError, OSError, UnavailableError) as error:
        raise UnavailableError(
            f"Spark does not start on {shown(address)}: {reason(error)}; --engine local needs neither Spark nor Java"
        ) from error


def start_here(name: str, settings: Mapping[str, str] | None = None) -> "SparkSession":
    """Return the session of this process; start one, with ``settings`` as well as Firn's own, if there is none."""
    from pyspark.sql import SparkSession

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    # Spark starts a server of its own in this process for `local`, with its own settings.
    remote = os.environ.get("SPARK_REMOTE", "")
    master = os.environ.get("FIRN_SPARK_MASTER", "")
    builder = SparkSession.builder.appName(name)
    if not remote:
        for key, value in (_settings() | dict(settings or {})).items():
            builder = builder.config(key, value)
        if master and not submitted:
            builder = builder.master(master)
    if not submitted and is_local(remote or master or "local"):
        # Workers on this machine must run this Python, which has all packages. Spark would run python3 from the PATH.
        os.environ["PYSPARK_PYTHON"] = sys.executable
    return builder.getOrCreate()


def shares_session() -> bool:
    """True if the environment names a session that other processes may use too: it must not end with this process."""
    return SESSION in os.environ.get("SPARK_REMOTE", "") or _server_folder() is not None


def lacking() -> str | None:
    """What Spark lacks on this machine; None when nothing is missing. A client of Spark Connect needs no Java."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed (pip install 'firnlake[spark]')"
    if os.environ.get("SPARK_REMOTE", "").startswith(CONNECT):
        return None
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    return (
        None
        if shutil.which(java)
        else f"{java} was not found: Spark needs Java 17 or newer, on the PATH or in JAVA_HOME"
    )


def application(spark: "SparkSession") -> str | None:
    """The Spark application and its UI address, for logs; None for a session on a Spark Connect server elsewhere."""
    if not hasattr(spark, "sparkContext"):
        from firnlake.engine.server import running

        server = running(folder) if (folder := _server_folder()) else None
        return f"{server.application}, shared by the commands of this run (process {server.pid})" if server else None
    context = spark.sparkContext
    watched = f", UI {context.uiWebUrl}" if context.uiWebUrl else ""
    return f"Spark application {context.applicationId} on {context.master}{watched}"


def with_session(address: str, session: uuid.UUID) -> str:
    """``address`` of a Spark Connect server with the session to use there, unless it names one."""
    if SESSION in address:
        return address
    place, *parameters = address.split(";")
    return ";".join([f"{place.rstrip('/')}/", *parameters, f"{SESSION}{session}"])


def _connected(address: str) -> "SparkSession":
    """A session on a Spark Connect server.

    A session that has ended, because nobody used it for an hour, can't be opened again. Then all who share it go on to
    the same next one.
    """
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client.retries import DefaultPolicy

    plain, _, named = address.partition(SESSION)
    for _ in range(_MOST_SESSIONS):
        session: SparkSession = SparkSession.builder.remote(address).create()
        policy = DefaultPolicy(max_retries=_RETRIES, max_backoff=_LONGEST_WAIT_MS)
        session.client.set_retry_policies([policy])  # type: ignore[operator]  # `client` is typed as a property of itself
        try:
            assert session.version  # asks the server
        except SparkConnectGrpcException as error:
            if not named or "SESSION_CLOSED" not in str(error):
                raise
        else:
            return session
        named, *others = named.split(";")
        named = ";".join([str(uuid.uuid5(uuid.UUID(named), "next")), *others])
        address = f"{plain}{SESSION}{named}"
    raise UnavailableError(f"{_MOST_SESSIONS} sessions of {shown(address)} have ended")


def _server_folder() -> Path | None:
    """The folder of the server that commands on this machine share; None if they don't."""
    folder = os.environ.get(SERVER_FOLDER)
    return Path(folder) if folder and "PYSPARK_GATEWAY_PORT" not in os.environ else None


def _start_seconds() -> int:
    text = os.environ.get("FIRN_SPARK_START_SECONDS") or str(START_SECONDS)
    if not text.isdecimal() or not 0 < int(text) <= _DAY:
        raise RefusedError(f"FIRN_SPARK_START_SECONDS is {text!r}; allowed: a number of seconds, from 1 to {_DAY}")
    return int(text)


def _settings() -> dict[str, str]:
    """Spark settings that Firn needs; the cluster decides all others."""
    return {
        "spark.ui.enabled": os.environ.get("FIRN_SPARK_UI", "false"),
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        # Applies if this process starts the JVM. Options that the installation sets come later, and take precedence.
        # The JVM runs little code of its own: to compile it thoroughly takes longer than the start itself.
        "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} -XX:TieredStopAtLevel=1",
    }
