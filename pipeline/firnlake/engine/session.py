"""Firn's Spark session: a scheduler for Python workers that needs no Iceberg jar, catalog or credentials.

Spark's own clients try for minutes to reach an address where nobody answers, and then name no cause. So Firn probes the
address first.
"""

import os
import shutil
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from firnlake.engine.spark import reason
from firnlake.errors import RefusedError, UnavailableError
from firnlake.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


CONNECT = "sc://"
STANDALONE = "spark://"
ANSWER_SECONDS = 10
"""Seconds within which a host has to accept a connection, and a Spark Connect server to answer."""
_PORTS = {CONNECT: 15002, STANDALONE: 7077}
_SESSION = "session_id="
"""Parameter of the address of a Spark Connect server: the session that all who use the address share."""
_RETRIES, _LONGEST_WAIT_MS = 8, 10_000
"""A call to a Spark Connect server that has died fails after 45 s, where Spark's own client tries for ten minutes."""
_LOGGING = Path(__file__).with_name("log4j2.properties")


def start(name: str) -> "SparkSession":
    """Return a session on the Spark Connect server that SPARK_REMOTE names, or the session of this process.

    If SPARK_REMOTE is not set, this process is the driver. Then the master is the one that ``spark-submit`` was given,
    or FIRN_SPARK_MASTER, or Spark's own default (``local[*]``); the session gets the name ``name`` if there was none.
    Raises RefusedError when Spark is not installed, or when SPARK_REMOTE is no address of a Spark Connect server, and
    UnavailableError when Spark does not start.
    """
    if lacks := lacking():
        raise RefusedError(f"Spark can't start: {lacks}; allowed: install it, or --engine local, which needs no Spark")
    remote = os.environ.get("SPARK_REMOTE", "")
    if remote and not remote.startswith(CONNECT):
        raise RefusedError(f"SPARK_REMOTE is {remote!r}; allowed: the address of a Spark Connect server, {CONNECT}…")
    master = os.environ.get("FIRN_SPARK_MASTER", "")
    address = remote or master or "local[*]"

    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    with Progress(f"starting Spark on {shown(address)}", 1, lambda: None):
        if hindered := obstacle(address):
            raise _not_started(address, hindered)
        try:
            return _connected(remote) if remote else _driver(name, master)
        except (PySparkException, Py4JError, OSError) as error:
            raise _not_started(address, reason(error)) from error


def ends_with_command() -> bool:
    """True if a session on a Spark Connect server is this command's alone: its address names no session to share."""
    return _SESSION not in os.environ.get("SPARK_REMOTE", "")


def lacking() -> str | None:
    """What Spark lacks on this machine; None when nothing is missing. A client of Spark Connect needs no Java."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed (pip install 'firnlake[spark]')"
    if os.environ.get("SPARK_REMOTE"):
        return None
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    return (
        None
        if shutil.which(java)
        else f"{java} was not found: Spark needs Java 17 or newer, on the PATH or in JAVA_HOME"
    )


def application(spark: "SparkSession") -> str | None:
    """The Spark application and its UI address, for logs; None for a session on a Spark Connect server."""
    if not hasattr(spark, "sparkContext"):
        return None
    context = spark.sparkContext
    watched = f", UI {context.uiWebUrl}" if context.uiWebUrl else ""
    return f"Spark application {context.applicationId} on {context.master}{watched}"


def shown(address: str) -> str:
    """``address`` without its parameters, which may hold a token."""
    return address.partition(";")[0].rstrip("/")


def obstacle(address: str) -> str | None:
    """The reason why Spark does not answer at ``address``; None if it does, or if Spark alone can tell.

    Firn looks at addresses of Spark Connect servers and of standalone masters, of which one has to answer.
    """
    kind = next((kind for kind in _PORTS if address.startswith(kind)), None)
    if kind is None:
        return None
    hosts = shown(address).removeprefix(kind).split(",")
    found = [_unreachable(f"//{host}", _PORTS[kind]) for host in hosts]
    if None not in found:
        return found[0]
    return _no_connect_server(address) if kind == CONNECT else None


def _unreachable(location: str, port: int) -> str | None:
    """The reason why a connection to ``location`` can't be opened; None if it can, or if a proxy has to open it."""
    try:
        parts = urlsplit(location)
        host, port = parts.hostname or "", parts.port or port
    except ValueError:
        return None  # Spark says what is wrong with it
    if {"grpc", "https", "http"} & getproxies().keys() and not proxy_bypass(host):
        return None
    try:
        socket.create_connection((host, port), ANSWER_SECONDS).close()
    except socket.gaierror as error:
        return f"no such host ({error.strerror})"
    except ConnectionRefusedError:
        return "nothing listens there"
    except TimeoutError:
        return f"no answer within {ANSWER_SECONDS} s"
    except OSError as error:
        return str(error.strerror or error)
    return None


def _no_connect_server(address: str) -> str | None:
    import grpc  # type: ignore[import-untyped]  # it has no types
    from pyspark.sql.connect.client import DefaultChannelBuilder

    channel = DefaultChannelBuilder(address).toChannel()
    try:
        grpc.channel_ready_future(channel).result(ANSWER_SECONDS)
    except grpc.FutureTimeoutError:
        return "no Spark Connect server answers there"
    finally:
        channel.close()
    return None


def _not_started(address: str, cause: str) -> UnavailableError:
    return UnavailableError(
        f"Spark does not start on {shown(address)}: {cause}; --engine local needs neither Spark nor Java"
    )


def _connected(address: str) -> "SparkSession":
    """A session on a Spark Connect server."""
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session: SparkSession = SparkSession.builder.remote(address).create()
    policy = DefaultPolicy(max_retries=_RETRIES, max_backoff=_LONGEST_WAIT_MS)
    session.client.set_retry_policies([policy])  # type: ignore[operator]  # `client` is typed as a property of itself
    assert session.version  # asks the server
    return session


def _driver(name: str, master: str) -> "SparkSession":
    """The session of this process, which is the driver; an empty ``master`` is Spark's to choose."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        # Applies if this process starts the JVM. Options that the installation sets come later, and take precedence.
        # The JVM runs little code of its own: to compile it thoroughly takes longer than the start itself.
        "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} -XX:TieredStopAtLevel=1",
    }
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master and not submitted:
        settings["spark.master"] = master
    # Not `local-cluster`, which has executors.
    if not submitted and (master or "local").partition("[")[0] == "local":
        settings["spark.ui.enabled"] = "false"
        # Workers on this machine must run this Python, which has all packages. Spark would run python3 from the PATH.
        os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
