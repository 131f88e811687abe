"""Many tables: no DAG depends on how many others there are."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from firnlake.table import records
from infra.environment import CHECKOUT
from tests.airflow.conftest import without_database
from tests.support.lakes import append, row

TABLES = ("shop.a", "shop.b", "shop.c", "shop.d", "shop.e")
FILES = ("firn.py", "firn_refused.py")

PARSE = """
import gc, json, logging, sys, time
from pathlib import Path
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk import BaseOperator
from airflow.serialization.serialized_objects import DagSerialization

folder = Path(sys.argv[1])
logging.disable()
gc.disable()
said = {}
for file in sorted(folder.glob("*.py")):
    before = sum(issubclass(type(one), BaseOperator) for one in gc.get_objects())
    started = time.process_time()
    bag = BundleDagBag(file, bundle_path=folder, bundle_name="dags", load_op_links=False)
    seconds = time.process_time() - started
    tasks = sum(issubclass(type(one), BaseOperator) for one in gc.get_objects()) - before
    dags = {name: json.dumps(DagSerialization.to_dict(dag), default=str) for name, dag in bag.dags.items()}
    said[file.name] = {"dags": dags, "errors": "".join(bag.import_errors.values()), "tasks": tasks, "seconds": seconds}
(folder / "said.json").write_text(json.dumps(said))
"""


@dataclass(frozen=True)
class ParsedFile:
    """A DAG file as the DAG processor sees it: its DAGs, serialized, its error, the tasks that it made, CPU seconds."""

    dags: dict[str, str]
    errors: str
    tasks: int
    seconds: float


def parse(home: Path, tables: str, **changes: str) -> Mapping[str, ParsedFile]:
    """Parse the DAG files FILES with ``tables`` in firn.toml."""
    folder = home / "dags"
    folder.mkdir()
    for file in FILES:
        shutil.copy(CHECKOUT / "dags" / file, folder / file)
    (folder / "firn.toml").write_text(tables)
    done = without_database(home).python("-c", PARSE, str(folder), **changes)
    assert done.returncode == 0, done.stderr
    return {name: ParsedFile(**one) for name, one in json.loads((folder / "said.json").read_text()).items()}


def listed(*tables: str) -> str:
    return "[tables]\n" + "".join(f'"{table}" = {{}}\n' for table in tables)


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, ParsedFile]:
    return parse(tmp_path_factory.mktemp("many"), listed(*TABLES))


def test_f1_the_dag_of_a_table_names_no_other_table(parsed: Mapping[str, ParsedFile]) -> None:
    dags = {name: text for file in parsed.values() for name, text in file.dags.items() if name != "firn_maintain"}
    assert len(dags) == len(TABLES)
    strangers = {name: [one for one in TABLES if one in text] for name, text in dags.items()}
    assert strangers == {"firn__" + table.replace(".", "__"): [table] for table in TABLES}


def test_f1_only_the_file_of_the_dags_builds_tasks(parsed: Mapping[str, ParsedFile]) -> None:
    assert sorted(parsed["firn.py"].dags) == [
        *("firn__" + table.replace(".", "__") for table in TABLES),
        "firn_maintain",
    ]
    assert "".join(file.errors for file in parsed.values()) == ""
    assert all(table in parsed["firn.py"].dags["firn_maintain"] for table in TABLES)
    assert parsed["firn.py"].tasks > 0
    assert parsed["firn_refused.py"].tasks == 0


REFUSED = """
[tables]
"shop.good" = {}
"shop.cron" = { schedule = "daily" }
"shop.timeout" = { timeout_minutes = 10000000000000 }
"shop.approval" = { approval_minutes = 10000000000000 }
"shop.deadline" = { deadline_minutes = 10000000000000 }
"shop.retry" = { retry_seconds = 100000000000000 }
"shop.notified" = { notify = [{ class = "builtins.int", nobody = 1 }] }
"%s.namespace" = {}
"""


@pytest.mark.nightly
def test_a_table_without_a_dag_is_an_import_error(tmp_path: Path) -> None:
    parsed = parse(tmp_path, REFUSED % ("long" * 30))
    assert sorted(parsed["firn.py"].dags) == ["firn__shop__good", "firn_maintain"]
    assert parsed["firn.py"].errors == ""
    told = parsed["firn_refused.py"].errors
    names = ("cron", "timeout", "approval", "deadline", "retry", "notified")
    assert [name for name in names if f"table shop.{name}: " not in told] == []
    assert f"table {'long' * 30}.namespace: tag cannot be longer" in told
    assert "shop.good" not in told


@pytest.mark.nightly
def test_f1_a_task_builds_its_own_dag_alone(tmp_path: Path) -> None:
    parsed = parse(tmp_path, listed(*TABLES), _AIRFLOW_PARSING_CONTEXT_DAG_ID="firn__shop__e")
    assert list(parsed["firn.py"].dags) == ["firn__shop__e"]


@pytest.mark.nightly
def test_f1_a_thousand_tables_have_their_dags(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    names = [f"shop.orders_{number:04d}" for number in range(1000)]
    # A machine that has other work to do must not fail the test: what Airflow allows by default is 30 s.
    parsed = parse(tmp_path, listed(*names), AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT="600")
    assert {name: (len(file.dags), file.errors) for name, file in parsed.items()} == {
        "firn.py": (1001, ""),
        "firn_refused.py": (0, ""),
    }
    seconds = max(file.seconds for file in parsed.values())
    record_property("CPU seconds of a DAG file with 1,000 tables (Airflow allows 30 s)", round(seconds, 1))


SENSE = """
import asyncio, json, sys
from airflow.triggers.shared_stream import SharedStreamManager
from firnlake.airflow.trigger import ThresholdTrigger

async def announced(manager, table):
    trigger = ThresholdTrigger(table=table, seconds=0.1)
    key = trigger.shared_stream_key()
    stream = manager.subscribe(trigger_id=table, trigger=trigger, key=key)
    try:
        async for event in trigger.filter_shared_stream(stream):
            return event.payload["table"]
    finally:
        await manager.unsubscribe(table, key)

async def main():
    manager = SharedStreamManager()
    waiting = asyncio.create_task(announced(manager, "t.idle"))
    events = [await announced(manager, "t.first"), await announced(manager, "t.later")]
    keys = {ThresholdTrigger(table=table, seconds=0.1).shared_stream_key() for table in ("t.first", "t.later")}
    print("RESULT", json.dumps({"events": events, "loops": len(keys), "idle": waiting.done()}))
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

asyncio.run(main())
"""


@pytest.mark.nightly
def test_f1_a_loop_that_polls_goes_on_with_the_table_that_comes_later(tmp_path: Path) -> None:
    airflow = without_database(tmp_path)
    for table in ("t.idle", "t.first", "t.later"):
        records.create(airflow.lake, table, {"firn.merge.segments": "2"})
    for table in ("t.first", "t.later") * 2:
        append(airflow.lake, [row(0)], table)
    done = airflow.python("-c", SENSE)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    said: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
    assert said == {"events": ["t.first", "t.later"], "loops": 1, "idle": False}
