"""The DAG files as Airflow's parser sees them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from firnlake.lanes import Lane
from firnlake.table import records
from firnlake_expectations.data_quality import page_of, table_of
from tests.airflow.conftest import LocalAirflow, make, without_database

LANES = [*Lane]

PARSE = """
import json, os, sys, time
from airflow.dag_processing.dagbag import DagBag

started = time.monotonic()
bag = DagBag(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
seconds = time.monotonic() - started
dags = {
    dag_id: {
        "tasks": {task.task_id: sorted(task.upstream_task_ids) for task in dag.tasks},
        "groups": [group for group in dag.task_group.get_task_group_dict() if group],
        "params": {name: dag.params.get_param(name).schema | {"value": dag.params[name],
            "description": dag.params.get_param(name).description} for name in dag.params},
        "catchup": dag.catchup,
        "clock": dag.timetable.timetable.expression,
        "starts_on": [asset.name for asset in dag.timetable.asset_condition.objects],
        "uris": [asset.uri for asset in dag.timetable.asset_condition.objects],
        "documented": [task.task_id for task in dag.tasks if task.doc_md],
        "settings": {task.task_id: [task.owner, task.pool, task.pool_slots, task.retries, str(task.execution_timeout)]
            for task in dag.tasks},
        "notified": [str(call) for call in dag.get_task("verdict").on_failure_callback],
        "deadlines": [str(one.interval) for one in dag.deadline or []],
        "tags": sorted(dag.tags),
    }
    for dag_id, dag in bag.dags.items() if dag_id != "firn_maintain"
}
packages = sorted({name.partition(".")[0] for name in sys.modules})
own = sorted(name for name in sys.modules if name.startswith("firnlake."))
with open(sys.argv[1], "w") as file:
    json.dump({"errors": bag.import_errors, "dags": dags, "all": list(bag.dags), "packages": packages, "own": own,
        "seconds": seconds}, file)
"""


@dataclass(frozen=True)
class Parsed:
    """The result of parsing the DAGs folder in a fresh process."""

    errors: dict[str, str]
    dags: dict[str, dict[str, Any]]
    all: list[str]
    packages: list[str]
    own: list[str]
    seconds: float


def parse(airflow: LocalAirflow, folder: Path, tables: str | None = None, **changes: str | None) -> Parsed:
    """The DAGs of ``airflow``, or those of another tables.toml with the text ``tables``; writes into ``folder``."""
    if tables is not None:
        changes["FIRN_TABLES"] = str(folder / "tables.toml")
        (folder / "tables.toml").write_text(tables)
    result = folder / "result.json"
    done = airflow.python("-c", PARSE, str(result), **changes)
    assert done.returncode == 0, done.stderr
    return Parsed(**json.loads(result.read_text()))


TABLES = ("shop.orders", "shop.my orders", "shop.orders#1", "shop.orders#2", "shop.bestellungen_für_" + "o" * 300)
"""Most names are no ids of DAGs."""
SETTINGS = """
[defaults]
owner = "data platform"
pool = "spark"
retries = 2
notify = [{ class = "airflow.providers.smtp.notifications.smtp.SmtpNotifier", to = "lake@example.org" }]

[tables."shop.orders"]
pool_slots = 3
timeout_minutes = 90
deadline_minutes = 120
tags = ["gold"]
"""


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> Parsed:
    folder = tmp_path_factory.mktemp("parsed")
    others = "".join(f'[tables."{name}"]\n' for name in TABLES[1:])
    return parse(without_database(folder), folder, SETTINGS + others)


def test_r20_one_dag_per_table_whatever_its_name(
    parsed: Parsed, record_property: Callable[[str, object], None]
) -> None:
    assert parsed.errors == {}
    assert {dag["starts_on"][0] for dag in parsed.dags.values()} == {f"{name} is due" for name in TABLES}
    assert len({uri for dag in parsed.dags.values() for uri in dag["uris"]}) == len(TABLES)
    assert "firn_maintain" in parsed.all
    record_property(f"s to parse the DAGs of {len(TABLES)} tables", round(parsed.seconds, 2))


def test_parsing_imports_nothing_heavy(parsed: Parsed) -> None:
    assert "airflow" in parsed.packages
    assert {"pyspark", "great_expectations", "duckdb", "pyiceberg", "pyarrow"}.isdisjoint(parsed.packages)
    others = {name for name in parsed.own if not name.startswith("firnlake.airflow")}
    assert others <= {"firnlake.clock", "firnlake.errors"}


def test_lanes_follow_each_other(parsed: Parsed) -> None:
    tasks = parsed.dags["firn__shop__orders"]["tasks"]
    assert tasks["turn"] == []
    assert tasks["due"] == ["turn"]
    before = "due"
    for lane in LANES:
        assert tasks[f"{lane}.plan"] == [before]
        before = f"{lane}.publish"
        assert tasks[f"{lane}.jobs.compact"] == [f"{lane}.plan"]
        assert tasks[f"{lane}.jobs.validate"] == [f"{lane}.jobs.compact", f"{lane}.plan"]
        assert tasks[f"{lane}.publish"] == [f"{lane}.jobs.validate", f"{lane}.plan"]
    validated = {f"{lane}.publish" for lane in LANES}
    assert {*validated, "report"} == set(tasks["verdict"])
    assert validated <= set(tasks["report"])
    assert "verdict" in tasks["sweep"]


def test_groups_show_the_levels_and_every_task_is_documented(parsed: Parsed) -> None:
    dag = parsed.dags["firn__shop__orders"]
    assert set(dag["groups"]) == {name for lane in LANES for name in (lane, f"{lane}.jobs")}
    assert sorted(dag["documented"]) == sorted(dag["tasks"])


def test_params_are_typed_and_described(parsed: Parsed) -> None:
    params = parsed.dags["firn__shop__orders"]["params"]
    assert {name: param["value"] for name, param in params.items()} == {
        "lane": "all",
        "topics": [],
        "partitions": [],
        "properties": {},
        "force": False,
        "dry_run": False,
        "ask": False,
    }
    assert params["lane"]["enum"] == ["all", *LANES]
    assert all(param["description"] for param in params.values())


def test_the_clock_runs_from_now_on_and_what_becomes_due_starts_the_dag_too(parsed: Parsed) -> None:
    dag = parsed.dags["firn__shop__orders"]
    assert dag["catchup"] is False
    assert "*/15 * * * *" in dag["clock"]
    assert dag["starts_on"] == ["shop.orders is due"]


def test_settings_reach_the_tasks(parsed: Parsed) -> None:
    dag = parsed.dags["firn__shop__orders"]
    assert dag["settings"]["full.jobs.compact"] == ["data platform", "spark", 3, 2, "1:30:00"]
    assert dag["settings"]["full.plan"] == ["data platform", "default_pool", 1, 2, "None"]
    assert "SmtpNotifier" in dag["notified"][0]
    assert dag["deadlines"] == ["2:00:00"]
    assert dag["tags"] == ["firn", "gold", "shop"]


def test_a_table_of_which_nothing_was_judged_has_its_report(tmp_path: Path) -> None:
    airflow = without_database(tmp_path)
    records.create(airflow.lake, "shop.new", {})
    update = "import sys; from firnlake.airflow.figures import Lake, update; update(Lake.load(), sys.argv[1])"
    done = airflow.python("-c", update, "shop.new")
    assert done.returncode == 0, done.stderr
    assert table_of(airflow.lake.reports_folder, page_of("shop.new")) == "shop.new"


@pytest.mark.nightly
def test_the_shipped_tables_file_is_read(tmp_path: Path) -> None:
    found = parse(without_database(tmp_path), tmp_path, FIRN_TABLES=None)
    assert found.errors == {}
    assert set(found.dags) == {"firn__kafka__files"}


@pytest.mark.nightly
def test_firn_maintain_finds_the_tables_of_a_pattern(migrated: Path, tmp_path: Path) -> None:
    airflow = make(tmp_path, {"shop.a": "", "hr.pay": ""}, migrated)
    (tmp_path / "tables.toml").write_text('[tables."shop.*"]\n')
    maintain = ("-m", "infra.airflow.headless", "firn_maintain", str(tmp_path / "maintain.log"))
    assert airflow.python(*maintain, stdin="{}").returncode == 0
    found = parse(airflow, tmp_path)
    assert found.errors == {}
    assert set(found.all) == {"firn__shop__a", "firn_maintain"}
