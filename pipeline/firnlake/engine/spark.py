"""Run tasks on Spark. Spark's Python workers execute the tasks; Spark itself only moves data, and reads no records.

Firn's session is a scheduler for Python workers that needs no Iceberg jar, catalog or credentials. Spark's own clients
try for minutes to reach an address where nobody answers, and then name no cause. So Firn probes the address first.

Only the DataFrame API is used, so both a classic session and Spark Connect work. A job's inputs, including credentials,
are part of the pickled function, so none of them appear in settings, in the UI or in event logs.
"""

import os
import pickle
import re
import shutil
import socket
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from firnlake import errors
from firnlake.engine import worker
from firnlake.engine.engine import WorkerLostError, balanced
from firnlake.engine.worker import SCHEMA, Batches, pickled
from firnlake.errors import ConflictError, FirnError, RefusedError, UnavailableError
from firnlake.progress import Progress

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession


T = TypeVar("T")
R = TypeVar("R")

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


MOST_ASKED = 4096
"""Upper limit of the parallelism that Firn assumes for a remote session."""

_REFUSES = "This worker can't run Firn: "
_CANT_WORK = re.compile(
    r"(?i)PyArrow >= \S+ must be installed|No module named '(?:pyarrow|pyspark)\b|UNSUPPORTED_PACKAGE_VERSION"
    r"|PYTHON_VERSION_MISMATCH|Cannot run program"
)
"""Spark's messages for a worker whose Python is missing, or lacks packages that Spark itself needs."""
_DIED = re.compile(
    r"Python worker exited unexpectedly|Python worker failed to connect|ExecutorLostFailure|EOFException"
    r"|OutOfMemoryError|Executor heartbeat timed out|Slave lost|worker lost"
)
_REFUSED = re.compile(f"{_REFUSES}(.*)")
_RAISED = re.compile(r"(?m)^firnlake\.errors\.(\w+): (.*)$")
"""Python's messages, in Spark's, for a worker that refuses its work, and for an error that Firn raised there."""
_KINDS = (RefusedError, ConflictError, UnavailableError)
_LIMIT = re.compile(r"[^\n:]*(?:bigger than|exceeds max allowed:) (spark\.[\w.]+)[^\n]*")
"""Spark's messages for a job that exceeds a limit, with the setting that limits it."""
_CAUSE = re.compile(r'Caused by: (.*)|details = "(.*)"')
"""Spark's messages for the cause of an error; the second is gRPC's."""

_REMEDY = "allowed: workers with the driver's version of Firn, from an archive or an image (docs/configuration.md)"


class _WorkerDiedError(Exception):
    """A worker died, so its job failed; it is unknown which of the job's tasks killed the worker."""


class SparkEngine:
    """A Spark session that runs tasks. If ``owned``, closing the engine ends its session on a Spark Connect server.

    ``map`` raises RefusedError for unusable workers, for which no plan is to blame, and UnavailableError if Spark does
    not answer.
    """

    def __init__(self, session: "SparkSession", *, owned: bool = False) -> None:
        self._session = session
        self._owned = owned
        self._version = version("firnlake")

    @property
    def parallelism(self) -> int:
        """Number of cores in the cluster now; for a remote session, the number at the first call."""
        context = _context(self._session)
        return int(context.defaultParallelism) if context else self._remote_parallelism

    @cached_property
    def _remote_parallelism(self) -> int:
        from pyspark.sql import functions as F

        with _told():
            partitions = self._session.range(MOST_ASKED).select(F.spark_partition_id()).collect()
        return len({row[0] for row in partitions})

    def map(
        self, function: Callable[[T], R], tasks: Sequence[T], *, weights: Sequence[int] | None = None, title: str = ""
    ) -> list[R | Exception]:
        """See Engine. A job that a task kills is halved until the task is alone; finished tasks do not run again."""
        code, documents, bytes_of = pickled(function), [pickled(task) for task in tasks], weights or [0] * len(tasks)

        def results(numbers: Sequence[int], *, alone: bool) -> dict[int, object]:
            """The results of tasks. If ``alone``, their job died, so a single task gets one more try."""
            shares = balanced([bytes_of[number] for number in numbers], self.parallelism)
            groups = [{numbers[at]: documents[numbers[at]] for at in share} for share in shares]
            try:
                rows = self._collected(self.read([partial(worker.results, code, one) for one in groups], SCHEMA), title)
                return {row["task"]: pickle.loads(bytes(row["result"])) for row in rows}  # noqa: S301  # from Firn's workers
            except _WorkerDiedError as error:
                if len(numbers) == 1:
                    return {numbers[0]: _lost(title, error)} if alone else results(numbers, alone=True)
            middle = len(numbers) // 2
            return results(numbers[:middle], alone=True) | results(numbers[middle:], alone=True)

        found = results(range(len(tasks)), alone=False) if tasks else {}
        return [cast("R | Exception", found[number]) for number in range(len(tasks))]

    def read(self, tasks: Sequence[Callable[[], Batches]], schema: "str | pa.Schema") -> "DataFrame":
        """The rows that ``tasks`` read, as a DataFrame with the columns of ``schema`` and a partition per task."""
        if not isinstance(schema, str):
            schema = self._session.createDataFrame(schema.empty_table()).schema
        numbered = {number: pickled(task) for number, task in enumerate(tasks)}  # a worker unpickles only its own
        numbers = self._session.range(0, len(tasks), 1, len(tasks))
        return numbers.mapInArrow(entry_of(self._version, partial(worker.read, numbered)), schema)

    def written(self, frame: "DataFrame", task: Callable[[Batches], Batches], schema: str, title: str) -> "list[Row]":
        """Call ``task`` on every partition of ``frame``, and return the rows that it gives, few and with the columns of
        ``schema``. A job whose worker dies runs once more.

        Raises the FirnError of a task; WorkerLostError if a worker dies again; and what ``map`` raises.
        """
        result = frame.mapInArrow(entry_of(self._version, task), schema)
        with suppress(_WorkerDiedError):
            return self._collected(result, title)
        try:
            return self._collected(result, title)
        except _WorkerDiedError as error:
            raise _lost(title, error) from error

    def check(self) -> None:
        """Raise RefusedError unless a worker has all it needs. The first call also warms up the workers."""
        for result in self.map(bool, [0], title="starting workers"):
            if isinstance(result, Exception):
                raise result

    def close(self) -> None:
        """End a session on a server. A JVM of this process is shared, so it is left to end with the process."""
        if self._owned and not _context(self._session):
            self._session.stop()

    def _collected(self, frame: "DataFrame", title: str) -> "list[Row]":
        with _told(), _watched(self._session, title):
            return frame.collect()


def entry_of(expected: str, task: Callable[[Batches], Batches]) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """The function that Spark sends to its workers, which runs ``task`` there.

    A worker with another version of Firn than ``expected`` refuses the work. Pickled by value, so that a worker without
    Firn can report it.
    """
    document = pickled(task)

    def firn(batches: Iterable[Any]) -> Iterable[Any]:
        import importlib

        try:
            own = importlib.import_module("firnlake.engine.worker")
            refused = own.complaint(expected)
        except ImportError as error:
            refused = f"Firn is not installed there ({error})"
        if refused:
            raise RuntimeError(f"{_REFUSES}{refused}")
        yield from own.run(batches, document)

    return firn


def _lost(title: str, error: Exception) -> WorkerLostError:
    return WorkerLostError(
        f"{title or 'a task'}: the Spark worker that ran it died, and died again when the task was retried alone "
        f"({error}); the worker's log may say why: too little memory, or a crash of native code"
    )


@contextmanager
def _told() -> Iterator[None]:
    """Translate Spark's errors to Firn's: a worker died, a worker is unusable, or Spark did not run the job."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        raise _meaning(error) from error


def _meaning(error: Exception) -> FirnError | _WorkerDiedError:
    text = str(error)
    if match := _REFUSED.search(text):
        return RefusedError(f"a Spark worker can't be used: {match[1]}; {_REMEDY}")
    if limit := _LIMIT.search(text):
        return RefusedError(f"the Spark job failed: {limit[0].strip()}; allowed: a larger {limit[1]}")
    if raised := _RAISED.findall(text):
        name, message = raised[-1]  # the last of a chain of exceptions
        kind = getattr(errors, name, FirnError)
        return next((one for one in _KINDS if issubclass(kind, one)), FirnError)(message)
    if match := _CANT_WORK.search(text):
        line = next(line for line in text.splitlines() if match[0] in line)
        return RefusedError(f"a Spark worker can't be used: {line.strip()}; {_REMEDY}")
    if died := _DIED.search(text):
        return _WorkerDiedError(died[0])
    return UnavailableError(f"the Spark job failed: {reason(error)}")


def reason(error: Exception) -> str:
    """One line from Spark's error: the innermost cause. Stack traces are in Spark's own log."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    causes = [found[1] or found[2] for line in lines if (found := _CAUSE.match(line))]
    plain = [line for line in lines if not line.startswith(("at ", "An error occurred"))]
    return (causes[-1:] or plain[:1] or [type(error).__name__])[0]


@contextmanager
def _watched(session: "SparkSession", title: str) -> Iterator[None]:
    """Show the progress of the job that this thread starts, and give the job a name in Spark's UI."""
    context = _context(session)
    if context is None:
        with _watched_remotely(session, title):
            yield
        return
    group = f"firn {uuid.uuid4()}"
    before = {key: context.getLocalProperty(key) for key in ("spark.jobGroup.id", "spark.job.description")}
    context.setJobGroup(group, title or "firn")
    try:
        with Progress(title, 0, partial(_figures, context, group)):
            yield
    finally:
        for key, value in before.items():
            context.setLocalProperty(key, value)


def _figures(context: Any, group: str) -> tuple[int, int] | None:
    """Numbers of finished and of all Spark tasks."""
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    figures = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage]
    return (sum(done for done, _ in figures), sum(total for _, total in figures)) if figures else None


@contextmanager
def _watched_remotely(session: "SparkSession", title: str) -> Iterator[None]:
    seen: list[tuple[int, int]] = []

    def handle(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:  # noqa: ARG001  # called by name
        known = [(stage.num_completed_tasks, stage.num_tasks) for stage in stages or ()]
        seen[:] = [(sum(ended for ended, _ in known), sum(total for _, total in known))]

    # Spark's UI shows the tags of an operation; its jobs get their description from the server.
    tag = title.replace(",", ";") or "firn"
    session.addTag(tag)
    session.registerProgressHandler(handle)
    try:
        with Progress(title, 0, lambda: seen[0] if seen else None):
            yield
    finally:
        session.removeProgressHandler(handle)
        session.removeTag(tag)


def _context(session: "SparkSession") -> Any:
    """The Spark context of a classic session; None for a remote one."""
    return getattr(session, "sparkContext", None)
