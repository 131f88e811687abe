"""The Spark that an Airflow connection names, as the environment variables by which a task's process finds it.

With a connection to Spark Connect, the task is a client of that server. Otherwise it is Spark's driver; the Spark
master decides where executors run. Airflow's Spark provider is not used, because it installs pyspark-client, whose
files overwrite those of pyspark.
"""

import json
import logging
import os
import shlex
import sys
from collections.abc import Mapping
from urllib.parse import quote

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException

from firnlake.airflow.configuration import DEFAULT_CONNECTION

log = logging.getLogger(__name__)

_HERE = {"conn_type": "spark", "host": "local[*]"}
"""Connection that is used if none is defined: Spark inside the task."""
_CONNECT = "sc://"
_TYPES = ("spark", "spark_connect", "generic")
"""Types of connections to Spark. Without Airflow's Spark provider, Airflow's form offers only the last type."""
_EXTRAS = {"queue": "spark.yarn.queue", "namespace": "spark.kubernetes.namespace"}
"""Extras of a connection to a Spark master, and the Spark settings for which they stand."""
_SPARK_VARIABLES = frozenset({"FIRN_SPARK_MASTER", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE"})
"""Environment variables that say which Spark a process uses."""


def use_spark(conn_id: str, conf: Mapping[str, str]) -> None:
    """Let this process, which is a task's, use the Spark of ``spark_environment``, and no other."""
    environment = spark_environment(conn_id, conf)
    for name in _SPARK_VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(environment)


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
    mode = extras.pop("deploy-mode", "client")
    wrong = sorted(extras.keys() - _EXTRAS.keys()) + ([f"deploy-mode {mode!r}"] if mode != "client" else [])
    if wrong:
        raise AirflowFailException(
            f"the connection {connection.conn_id} has the extra {', '.join(wrong)}; allowed: {', '.join(_EXTRAS)}, and "
            "deploy-mode client, because the driver runs in the task; all other Spark settings belong in the setting "
            "`spark` of firn.toml"
        )
    return {_EXTRAS[name]: str(value) for name, value in extras.items()}
