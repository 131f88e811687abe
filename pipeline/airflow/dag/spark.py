"""Spark applications as tasks: the same `firn` command that a person would type, by Airflow's own operator.

The master is the connection's. A task that is killed kills its application; the log of the driver is the task's.
"""

import json
import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

from pipeline.airflow.configuration import CHECKOUT, DEFAULT_CONNECTION, TableSettings
from pipeline.airflow.site.links import AS_OF, links_of
from pipeline.errors import ConflictError, FirnError, OutcomeUnknownError, RefusedError, UnavailableError

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

APPLICATION = Path(__file__).parents[2] / "__main__.py"
_BY_EXIT_CODE = {kind.exit_code: kind for kind in (RefusedError, ConflictError, UnavailableError, OutcomeUnknownError)}
_EXIT_CODE = re.compile(r"Error code is: (\d+)")
_HERE = {"conn_type": "spark", "host": "local[*]"}
"""The connection of who has made none: Spark inside the task."""


class FirnSubmitOperator(SparkSubmitOperator):
    """`firn` on Spark. ``application_args`` are its command and arguments; ``plans`` are what they stand for, a line
    each, for people to read in the rendered template; ``topic_partitions`` names a mapped task.

    Fails with the error that the exit code of `firn` stands for, so that a retry policy can tell what may be tried
    again. Any other exit code, such as that of a JVM that was killed, is an AirflowException, which is tried again in
    the first ``crash_retries`` tries only, whatever the task's ``retries``: a crash may cost hours, a catalog that was
    down costs seconds.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "topic_partitions", "plans", "as_of")

    def __init__(
        self,
        *,
        table: str,
        topic_partitions: str = "",
        plans: Sequence[str] = (),
        as_of: str = AS_OF,
        conn_id: str = DEFAULT_CONNECTION,
        crash_retries: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(conn_id=conn_id, **kwargs)
        self.connection = conn_id
        self.operator_extra_links = links_of(table)
        self.as_of = as_of
        self.topic_partitions = topic_partitions
        self.plans = plans
        self.crash_retries = crash_retries

    def execute(self, context: "Context") -> None:
        """Submit, and wait for the end of the application."""
        check_connection(self.connection)
        try:
            super().execute(context)
        except AirflowException as error:
            if (meant := _meaning(error)) is not None:
                raise meant from error
            if context["ti"].try_number > self.crash_retries:
                raise AirflowFailException(str(error)) from error
            raise


def submit(command: str, settings: TableSettings) -> Mapping[str, Any]:
    """What is the same for all tasks that submit ``firn <command>``: the fixed arguments of a FirnSubmitOperator."""
    folder = Path(os.environ.get("FIRN_JARS") or CHECKOUT / ".cache" / "jars")
    return {
        "task_id": command,
        "table": settings.name,
        "conn_id": settings.connection,
        "name": f"firn {command} {settings.name}",
        "application": str(APPLICATION),
        # Jars, not packages: mapped tasks would race in Ivy's cache.
        "jars": ",".join(str(jar) for jar in sorted(folder.glob("*.jar"))) if settings.jars else None,
        "conf": settings.spark,
        # This very Python is the driver's.
        "env_vars": {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
        "crash_retries": settings.spark_retries,
        "pool": settings.pool,
        "pool_slots": settings.pool_slots,
        "execution_timeout": timedelta(minutes=settings.timeout_minutes),
        "map_index_template": "{{ task.topic_partitions }}",
    }


def check_connection(connection: str) -> None:
    """Fail the task when its Spark connection is not there: Airflow's operator would submit to yarn without a word.

    The default one need not be there. Then Spark runs in the task itself (``local[*]``), and the log says so.
    """
    try:
        Connection.get(connection)
    except AirflowNotFoundException:
        variable = f"AIRFLOW_CONN_{connection.upper()}"
        if connection != DEFAULT_CONNECTION:
            raise AirflowFailException(
                f"the connection {connection} does not exist; allowed: any Spark connection, for example "
                f"{variable}='{json.dumps(_HERE)}'"
            ) from None
        log.info("there is no connection %s: Spark runs here, with master %s", connection, _HERE["host"])
        # Airflow's own way to define a connection; for the process of this task alone.
        os.environ[variable] = json.dumps(_HERE)


def _meaning(error: AirflowException) -> FirnError | None:
    found = _EXIT_CODE.search(str(error))
    kind: type[FirnError] | None = _BY_EXIT_CODE.get(int(found[1])) if found else None
    return kind(f"{error} What firn said stands above in this log.") if kind else None
