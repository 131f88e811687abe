"""Connections of Airflow to Spark: what a task's process gets of them."""

import json
from typing import Any

import pytest

from tests.airflow.conftest import LocalAirflow

ASK = """
import json, os, sys
from firnlake.airflow.connections import spark_environment

answers = []
for connection, conf in json.loads(sys.argv[1]):
    os.environ["AIRFLOW_CONN_SPARK_OWN"] = json.dumps(connection)
    try:
        answers.append(spark_environment("spark_own", conf))
    except Exception as error:
        answers.append(f"{type(error).__name__}: {error}")
answers.append(spark_environment("spark_default", {}))
os.environ["SPARK_REMOTE"] = "sc://two"
answers.append(spark_environment("spark_default", {}))
print(json.dumps(answers))
"""
OPTIONS = {"spark.driver.extraJavaOptions": "-Da=b -Dc"}
WITH_OPTIONS = "--conf 'spark.driver.extraJavaOptions=-Da=b -Dc' pyspark-shell"
CLUSTER = {"conn_type": "spark", "host": "one", "port": 7077, "extra": {"deploy-mode": "client"}}
NAMES = {"conn_type": "spark", "host": "yarn", "extra": {"queue": "night", "namespace": "firn", "deploy-mode": ""}}
SERVER = {"conn_type": "generic", "host": "sc://one", "login": "me", "password": "a/b", "extra": {"use_ssl": True}}


def driver(master: str, arguments: str = "pyspark-shell") -> dict[str, str]:
    """The variables of a process that is a driver on ``master``."""
    return {"FIRN_SPARK_MASTER": master, "PYSPARK_SUBMIT_ARGS": arguments, "PYSPARK_PYTHON": "python9"}


CASES: tuple[tuple[dict[str, Any], dict[str, str], object], ...] = (
    ({"conn_type": "spark", "host": "yarn"}, OPTIONS, driver("yarn", WITH_OPTIONS)),
    ({"conn_type": "generic", "host": "spark://one", "port": 7077}, {}, driver("spark://one:7077")),
    (CLUSTER, {}, driver("spark://one:7077")),
    # What a table sets comes before what the connection has for all.
    (
        NAMES,
        {"spark.yarn.queue": "day"},
        driver("yarn", "--conf spark.yarn.queue=day --conf spark.kubernetes.namespace=firn pyspark-shell"),
    ),
    ({"conn_type": "spark_connect", "host": "one", "port": 15002}, OPTIONS, {"SPARK_REMOTE": "sc://one:15002/"}),
    (SERVER, {}, {"SPARK_REMOTE": "sc://one/;user_id=me;token=a%2Fb;use_ssl=True"}),
    ({"conn_type": "http", "host": "one"}, {}, "has type 'http' and host 'one'; allowed: type spark or"),
    ({"conn_type": "spark"}, {}, "has type 'spark' and host ''; allowed: type spark or"),
    (
        NAMES | {"extra": {"deploy-mode": "cluster"}},
        {},
        "has the extra deploy-mode 'cluster'; allowed: queue",
    ),
    (NAMES | {"extra": {"spark-home": "/opt"}}, {}, "has the extra spark-home; allowed: queue"),
)


@pytest.fixture(scope="module")
def answers(airflow: LocalAirflow) -> list[Any]:
    """The answers to all CASES, and those for a default connection that does not exist, from one process."""
    cases = json.dumps([case[:2] for case in CASES])
    done = airflow.python("-c", ASK, cases, PYSPARK_PYTHON="python9")
    assert done.returncode == 0, done.stderr
    all_answers: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return all_answers


@pytest.mark.parametrize(("number", "expected"), [(number, case[2]) for number, case in enumerate(CASES)])
def test_c26_a_connection_is_a_driver_or_a_server_or_refused(answers: list[Any], number: int, expected: object) -> None:
    if isinstance(expected, str):
        assert answers[number].startswith("AirflowFailException: the connection spark_own has ")
        assert expected in answers[number]
    else:
        assert answers[number] == expected


def test_the_default_connection_need_not_exist(answers: list[Any]) -> None:
    assert answers[-2:] == [driver("local[*]"), {"SPARK_REMOTE": "sc://two"}]
