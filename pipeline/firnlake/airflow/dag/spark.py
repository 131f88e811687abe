"""The command `firn` as a task, with the Spark that an Airflow connection names.

The command runs in a child process of the task, so its memory is freed at its end, and a task that is killed ends it.
With a connection to Spark Connect, this process is a client of that server. Otherwise it is Spark's driver; the Spark
master decides where executors run. Airflow's Spark provider is not used, because it installs pyspark-client, whose
files overwrite those of pyspark.
"""

import json
import logging
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperator, Connection
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

from firnlake.airflow.configuration import DEFAULT_CONNECTION, TableSettings
from firnlake.airflow.site.links import links_of
from firnlake.errors import ConflictError, FirnError, OutcomeUnknownError, RefusedError, UnavailableError

if TYPE_CHECKING:
    from airflow.sdk import Context


log = logging.getLogger(__name__)

GRACE_SECONDS = 10
"""Seconds that a child process gets to end by itself before it is killed."""

_BY_EXIT_CODE = {kind.exit_code: kind for kind in (RefusedError, ConflictError, UnavailableError, OutcomeUnknownError)}


class Command:
    """One run of `firn`; its output is the task's log."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        # The process must use the connection's Spark, and no other Spark.
        inherited = {key: value for key, value in os.environ.items() if not (environment and key in _SPARK_VARIABLES)}
        # A separate process group, because Spark's JVM and its workers may be children of the process.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "firnlake", *arguments],
            env={**inherited, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def wait(self) -> int:
        """Wait until the process ends; returns its exit code."""
        assert self._process.stdout
        for line in self._process.stdout:
            log.info("%s", line.rstrip())
        return self._process.wait()

    def end(self) -> None:
        """End the process and its children, unless the process has ended."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is not None:
                return
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(GRACE_SECONDS)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


def meant_by(exit_code: int, said: str) -> FirnError | None:
    """The error for ``exit_code`` of `firn`; None for other codes, such as that of a killed process."""
    kind: type[FirnError] | None = _BY_EXIT_CODE.get(exit_code)
    return kind(f"{said} The output of firn is above in this log.") if kind else None


_HERE = {"conn_type": "spark", "host": "local[*]"}
"""Connection that is used if none is defined: Spark inside the task."""
_CONNECT = "sc://"
_TYPES = ("spark", "spark_connect", "generic")
"""Types of connections to Spark. Without Airflow's Spark provider, Airflow's form offers only the last type."""
_EXTRAS = {"queue": "spark.yarn.queue", "namespace": "spark.kubernetes.namespace"}
"""Extras of a connection to a Spark master, and the Spark settings for which they stand."""
_SPARK_VARIABLES = frozenset({"FIRN_SPARK_MASTER", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE"})
"""Environment variables that say which Spark a process uses."""


class FirnOperator(BaseOperator):
    """Operator that runs `firn` on the engine of the table's configuration.

    ``arguments`` are the subcommand and its arguments, ``conn_id`` is the connection to Spark, and ``conf`` are Spark
    settings of a driver that this task starts. The UI shows ``plans``, the titles of the plans; ``topic_partitions``,
    the name of the mapped task; and ``input_bytes``, the bytes that the plans read.

    Fails with the error for the exit code of `firn`, so that a retry policy can tell which errors are worth a retry.
    Any other exit code, such as that of a killed process, raises AirflowException. A crash is retried
    only if it is among the first ``crash_retries`` tries, even if the task has more ``retries``: it may cost hours.
    """

    template_fields: Sequence[str] = ("arguments", "conf", "topic_partitions", "plans", "input_bytes")

    def __init__(
        self,
        *,
        table: str,
        engine: str,
        arguments: Sequence[str],
        conn_id: str = DEFAULT_CONNECTION,
        conf: Mapping[str, str] | None = None,
        topic_partitions: str = "",
        plans: Sequence[str] = (),
        input_bytes: int = 0,
        crash_retries: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.engine = engine
        self.arguments = arguments
        self.conn_id = conn_id
        self.conf = conf or {}
        self.operator_extra_links = links_of(table)
        self.topic_partitions = topic_partitions
        self.plans = plans
        self.input_bytes = input_bytes
        self.crash_retries = crash_retries
        self._command: Command | None = None

    def execute(self, context: "Context") -> None:
        """Run `firn` and wait until it ends."""
        command, *rest = self.arguments
        # The UI shows the arguments as a user would type them.
        self.arguments = [command, "--engine", self.engine, *rest]
        environment = {} if self.engine == "local" else spark_environment(self.conn_id, self.conf)
        log.info("firn %s", shlex.join(self.arguments))
        self._command = Command(self.arguments, environment)
        try:
            code = self._command.wait()
        finally:
            self._command.end()
        if not code:
            return
        failed = f"firn {command} failed with exit code {code}."
        if (meant := meant_by(code, failed)) is not None:
            raise meant
        if context["ti"].try_number > self.crash_retries:
            raise AirflowFailException(failed)
        raise AirflowException(failed)

    def on_kill(self) -> None:
        """End the process of this task, and its JVM."""
        if self._command:
            self._command.end()


def task_of(command: str, settings: TableSettings, engine: str) -> Mapping[str, Any]:
    """The arguments shared by all FirnOperators that run ``firn <command>`` on a table."""
    return {
        "task_id": command,
        "table": settings.name,
        "engine": engine,
        "conn_id": settings.connection,
        "conf": settings.spark,
        "crash_retries": settings.spark_retries,
        "pool": settings.pool,
        "pool_slots": settings.pool_slots,
        "execution_timeout": timedelta(minutes=settings.timeout_minutes),
        "map_index_template": "{{ task.topic_partitions }}",
    }


def spark_environment(conn_id: str, conf: Mapping[str, str]) -> dict[str, str]:
    """The environment variables with which a process uses the Spark that the connection ``conn_id`` names.

    The default connection may be undefined. Then SPARK_REMOTE names a Spark Connect server; if it is not set, Spark
    runs in the task itself (``local[*]``), and the log says so. ``conf`` does not apply to a Spark Connect server,
    which has its own settings. Fails the task if another connection does not exist, or is not a connection to Spark.
    """
    try:
        connection = Connection.get(conn_id)
    except AirflowNotFoundException:
        if conn_id != DEFAULT_CONNECTION:
            raise AirflowFailException(
                f"the connection {conn_id} does not exist; allowed: a connection to Spark or to Spark Connect, "
                f"for example AIRFLOW_CONN_{conn_id.upper()}='{json.dumps(_HERE)}'"
            ) from None
        if remote := os.environ.get("SPARK_REMOTE"):
            return {"SPARK_REMOTE": remote}
        log.info("connection %s does not exist: Spark runs on this worker, with master %s", conn_id, _HERE["host"])
        connection = Connection(conn_id=conn_id, conn_type=_HERE["conn_type"], host=_HERE["host"])
    host = connection.host or ""
    if connection.conn_type not in _TYPES or not host:
        raise AirflowFailException(
            f"the connection {conn_id} has type {connection.conn_type!r} and host {host!r}; allowed: type "
            f"{' or '.join(_TYPES)}, and as host a Spark master, such as {_HERE['host']}, or {_CONNECT}…"
        )
    if connection.conn_type == "spark_connect" or host.startswith(_CONNECT):
        return {"SPARK_REMOTE": _remote(connection)}
    master = host if "://" in host or not connection.port else f"spark://{host}"
    settings = [
        f"--conf {shlex.quote(f'{name}={value}')}" for name, value in (_extras(connection) | dict(conf)).items()
    ]
    return {
        "FIRN_SPARK_MASTER": f"{master}:{connection.port}" if connection.port else master,
        "PYSPARK_SUBMIT_ARGS": " ".join([*settings, "pyspark-shell"]),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
    }


def _remote(connection: Connection) -> str:
    """The address of a Spark Connect server, with parameters for Spark's client."""
    extra = connection.extra_dejson
    parameters = {"user_id": connection.login, "token": connection.password, "use_ssl": extra.get("use_ssl")}
    query = "".join(f";{name}={quote(str(value), safe='')}" for name, value in parameters.items() if value)
    port = f":{connection.port}" if connection.port else ""
    return f"{_CONNECT}{(connection.host or '').removeprefix(_CONNECT).rstrip('/')}{port}/{query}"


def _extras(connection: Connection) -> dict[str, str]:
    """Spark settings from a connection's extras. Fails the task for an extra that would have no effect."""
    extras = {name: value for name, value in connection.extra_dejson.items() if value}
    if extras.pop("deploy-mode", "client") != "client":
        raise AirflowFailException(
            f"the connection {connection.conn_id} has deploy-mode {connection.extra_dejson['deploy-mode']!r}; "
            "allowed: client, because the driver runs in the task"
        )
    if unknown := sorted(extras.keys() - _EXTRAS.keys()):
        raise AirflowFailException(
            f"the connection {connection.conn_id} has the extra {', '.join(unknown)}; allowed: deploy-mode, "
            f"{', '.join(_EXTRAS)}; all other Spark settings belong in the setting `spark` of firn.toml"
        )
    return {_EXTRAS[name]: str(value) for name, value in extras.items()}
