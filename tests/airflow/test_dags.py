"""The DAG files as Airflow's parser sees them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.conftest import TABLES, LocalAirflow

LANES = ("merge", "clean", "tier", "full")

PARSE = """
import json, os, sys
from airflow.dag_processing.dagbag import DagBag

bag = DagBag(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
dags = {
    dag_id: {
        "tasks": {task.task_id: sorted(task.upstream_task_ids) for task in dag.tasks},
        "groups": [group for group in dag.task_group.get_task_group_dict() if group],
        "params": {name: dag.params.get_param(name).schema | {"value": dag.params[name],
            "description": dag.params.get_param(name).description} for name in dag.params},
        "catchup": dag.catchup,
        "timetable": dag.timetable.summary if hasattr(dag.timetable, "summary") else str(dag.timetable),
    }
    for dag_id, dag in bag.dags.items()
}
packages = sorted({name.partition(".")[0] for name in sys.modules})
with open(sys.argv[1], "w") as file:
    json.dump({"errors": bag.import_errors, "dags": dags, "packages": packages}, file)
"""


@dataclass(frozen=True)
class Parsed:
    """What came out of parsing the DAGs folder in a fresh process."""

    errors: dict[str, str]
    dags: dict[str, dict[str, Any]]
    packages: list[str]


def parse(airflow: LocalAirflow, result: Path, **changes: str | None) -> Parsed:
    done = airflow.python("-c", PARSE, str(result), **changes)
    assert done.returncode == 0, done.stderr
    return Parsed(**json.loads(result.read_text()))


@pytest.fixture(scope="module")
def parsed(airflow: LocalAirflow, tmp_path_factory: pytest.TempPathFactory) -> Parsed:
    return parse(airflow, tmp_path_factory.mktemp("parsed") / "result.json")


def test_one_dag_per_table(parsed: Parsed) -> None:
    assert parsed.errors == {}
    assert set(parsed.dags) == {"firn__" + table.replace(".", "__") for table in TABLES}


def test_parsing_imports_nothing_heavy(parsed: Parsed) -> None:
    assert "airflow" in parsed.packages
    assert {"pyspark", "great_expectations", "pyiceberg", "pipeline", "expectations"}.isdisjoint(parsed.packages)


def test_lanes_follow_each_other(parsed: Parsed) -> None:
    tasks = parsed.dags["firn__t__busy"]["tasks"]
    assert tasks["retain.plan"] == []
    assert tasks["retain.drop"] == ["retain.plan"]
    assert tasks["merge.plan"] == ["retain.drop"]
    assert tasks["clean.plan"] == ["merge.publish"]
    assert tasks["tier.plan"] == ["clean.publish"]
    assert tasks["full.plan"] == ["tier.publish"]
    for lane in LANES:
        assert tasks[f"{lane}.jobs.compact"] == [f"{lane}.plan"]
        assert tasks[f"{lane}.jobs.validate"] == [f"{lane}.jobs.compact", f"{lane}.plan"]
        assert tasks[f"{lane}.publish"] == [f"{lane}.jobs.validate", f"{lane}.plan"]
    validated = {f"{lane}.publish" for lane in LANES}
    assert {*validated, "retain.drop", "report"} == set(tasks["verdict"])
    assert validated <= set(tasks["report"])
    assert "verdict" in tasks["sweep"]


def test_groups_show_the_levels(parsed: Parsed) -> None:
    groups = parsed.dags["firn__t__busy"]["groups"]
    assert set(groups) == {"retain", *(name for lane in LANES for name in (lane, f"{lane}.jobs"))}


def test_params_are_typed_and_described(parsed: Parsed) -> None:
    params = parsed.dags["firn__t__busy"]["params"]
    assert {name: param["value"] for name, param in params.items()} == {"lane": "all", "dry_run": False, "force": False}
    assert params["lane"]["enum"] == ["all", "retain", *LANES]
    assert all(param["description"] for param in params.values())


def test_the_clock_runs_from_now_on(parsed: Parsed) -> None:
    dag = parsed.dags["firn__t__busy"]
    assert dag["catchup"] is False
    assert "*/15 * * * *" in dag["timetable"]


def test_the_shipped_tables_file_is_read(airflow: LocalAirflow, tmp_path: Path) -> None:
    found = parse(airflow, tmp_path / "result.json", FIRN_TABLES=None)
    assert found.errors == {}
    assert set(found.dags) == {"firn__kafka__files"}


def test_an_unknown_setting_is_an_import_error(airflow: LocalAirflow, tmp_path: Path) -> None:
    tables = tmp_path / "tables.toml"
    tables.write_text('[tables."t.x"]\nplans_per_jobs = 3')
    found = parse(airflow, tmp_path / "result.json", FIRN_TABLES=str(tables))
    assert found.dags == {}
    assert "plans_per_jobs" in "".join(found.errors.values())
