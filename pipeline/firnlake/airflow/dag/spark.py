"""`firn` as a task: the same command as on the command line, by spark-submit, on Spark Connect, or without Spark.

Without Spark it is a child process: its memory is freed when it ends, and killing the task kills it too.
"""

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

from firnlake.airflow.configuration import DEFAULT_CONNECTION, TableSettings
from firnlake.airflow.site.links import AS_OF, links_of
from firnlake.errors import ConflictError, FirnError, OutcomeUnknownError, RefusedError, UnavailableError

if TYPE_CHECKING:
    from airflow.sdk import Context


log = logging.getLogger(__name__)

GRACE_SECONDS = 10
"""Seconds that a child has to end before it is killed."""

_BY_EXIT_CODE = {kind.exit_code: kind for kind in (RefusedError, ConflictError, UnavailableError, OutcomeUnknownError)}


class Command:
    """One run of `firn`; its output is the task's log."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        # A separate process group, because Spark's JVM and its workers may be children of the child.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "firnlake", *arguments],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def wait(self) -> int:
        """Wait until it ends; returns its exit code."""
        assert self._process.stdout
        for line in self._process.stdout:
            log.info("%s", line.rstrip())
        return self._process.wait()

    def end(self) -> None:
        """End it and its children, unless it has ended."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is not None:
                return
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(GRACE_SECONDS)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


def meant_by(exit_code: int, said: str) -> FirnError | None:
    """The error for an exit code of `firn`; None for other codes, such as that of a killed process."""
    kind: type[FirnError] | None = _BY_EXIT_CODE.get(exit_code)
    return kind(f"{said} The output of firn is above in this log.") if kind else None


APPLICATION = Path(__file__).parents[2] / "__main__.py"
CONNECT = "spark_connect"
"""Connection type of a Spark Connect server."""

_EXIT_CODE = re.compile(r"Error code is: (\d+)")
_HERE = {"conn_type": "spark", "host": "local[*]"}
"""Connection used when none is defined: Spark inside the task."""


class FirnOperator(SparkSubmitOperator):
    """Operator that runs `firn` on the engine that the table is configured for. ``application_args`` are the command
    and its arguments; ``plans`` describe them, one line each, in the rendered template; ``topic_partitions`` names a
    mapped task; ``input_bytes`` is the number of bytes that the plans read.

    Only spark-submit starts a JVM: the engine ``local`` is a child process of the task, and so is the client of a Spark
    Connect server. Fails with the error for the exit code of `firn`, so that a retry policy can distinguish errors
    worth retrying. Any other exit code, such as that of a killed process, is an AirflowException, which is retried in
    the first ``crash_retries`` tries only, regardless of the task's ``retries``: a crash may cost hours, a catalog that
    was down costs seconds.
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "topic_partitions",
        "plans",
        "input_bytes",
        "as_of",
    )

    def __init__(
        self,
        *,
        table: str,
        engine: str,
        topic_partitions: str = "",
        plans: Sequence[str] = (),
        input_bytes: int = 0,
        as_of: str = AS_OF,
        conn_id: str = DEFAULT_CONNECTION,
        crash_retries: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(conn_id=conn_id, **kwargs)
        self.connection = conn_id
        self.engine = engine
        self.operator_extra_links = links_of(table)
        self.as_of = as_of
        self.topic_partitions = topic_partitions
        self.plans = plans
        self.input_bytes = input_bytes
        self.crash_retries = crash_retries
        self._command: Command | None = None

    def execute(self, context: "Context") -> None:
        """Run `firn` and wait until it ends."""
        engine = self._chosen()
        given: list[str] = self.application_args or []
        asked = [*given[:1], "--engine", engine, *given[1:]]
        # The arguments that spark-submit gets and the UI shows.
        self.application_args = asked
        try:
            if engine == "local":
                self._run(asked, {})
            elif remote := remote_of(self.connection):
                self._run(asked, {"SPARK_REMOTE": remote})
            else:
                check_connection(self.connection)
                super().execute(context)
        except AirflowException as error:
            code = _EXIT_CODE.search(str(error))
            if code and (meant := meant_by(int(code[1]), str(error))) is not None:
                raise meant from error
            if context["ti"].try_number > self.crash_retries:
                raise AirflowFailException(str(error)) from error
            raise

    def on_kill(self) -> None:
        """End the process or application of this task."""
        if self._command:
            self._command.end()
        else:
            super().on_kill()

    def _chosen(self) -> str:
        """The engine for the plans' input; ``auto`` is decided here, because Spark needs a submission."""
        if self.engine != "auto":
            return self.engine
        from firnlake.engine.choice import Engines

        return "local" if self.input_bytes < Engines("auto").local_max_bytes else "spark"

    def _run(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        log.info("firn %s", " ".join(arguments))
        self._command = Command(arguments, environment)
        try:
            code = self._command.wait()
        finally:
            self._command.end()
        if code:
            raise AirflowException(f"firn {arguments[0]} failed. Error code is: {code}.")


def task_of(command: str, settings: TableSettings, engine: str) -> Mapping[str, Any]:
    """The fixed arguments of a FirnOperator for ``firn <command>``, the same for all such tasks of a table."""
    return {
        "task_id": command,
        "table": settings.name,
        "engine": engine,
        "conn_id": settings.connection,
        "name": f"firn {command} {settings.name}",
        "application": str(APPLICATION),
        "conf": settings.spark,
        # The driver uses this Python.
        "env_vars": {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
        "crash_retries": settings.spark_retries,
        "pool": settings.pool,
        "pool_slots": settings.pool_slots,
        "execution_timeout": timedelta(minutes=settings.timeout_minutes),
        "map_index_template": "{{ task.topic_partitions }}",
    }


def remote_of(connection: str) -> str | None:
    """The address of the Spark Connect server in the connection, or in SPARK_REMOTE; None for any other Spark."""
    try:
        configured = Connection.get(connection)
    except AirflowNotFoundException:
        return os.environ.get("SPARK_REMOTE") or None
    if configured.conn_type != CONNECT:
        return None
    from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

    return SparkConnectHook(connection).get_connection_url()


def check_connection(connection: str) -> None:
    """Fail the task when its Spark connection is not defined: Airflow's operator would silently submit to yarn.

    The default connection may be undefined. Then SPARK_REMOTE gives the address of Spark, or Spark runs in the task
    itself (``local[*]``), and the log says so.
    """
    try:
        Connection.get(connection)
    except AirflowNotFoundException:
        variable = f"AIRFLOW_CONN_{connection.upper()}"
        if connection != DEFAULT_CONNECTION:
            raise AirflowFailException(
                f"the connection {connection} does not exist; allowed: any connection to Spark or to Spark Connect, "
                f"for example {variable}='{json.dumps(_HERE)}'"
            ) from None
        if os.environ.get("SPARK_REMOTE"):
            return
        log.info("connection %s does not exist: Spark runs on this worker, with master %s", connection, _HERE["host"])
        # Airflow's own way to define a connection, for this task's process only.
        os.environ[variable] = json.dumps(_HERE)
