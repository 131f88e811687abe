"""C30: documents of requests and certificates, and files that an eraser does not expect in a table's folders."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.table.update import SetSnapshotRefUpdate

from firnlake.clock import show_ms
from firnlake.door import OpenCatalog
from firnlake.lanes.erasure.certificate import obstacles
from firnlake.lanes.erasure.requests import erasures_of
from infra.foreign.files import on_disk
from infra.foreign.row_deletes import add
from tests.support.faults import Nth, watched
from tests.support.records import History, rows_of
from tests.support.row_deletes import data_files
from tests.support.scenario import Scenario


def documents(scenario: Scenario, pattern: str) -> list[Path]:
    return sorted(on_disk(scenario.loaded().location()).rglob(pattern))


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("data/copy#1.parquet", "other"),
        ("data/copy?1.parquet", None),
        ("data/a#b/copy.parquet", None),
        ("metadata/erasures/copy.parquet", None),
        ("metadata/erasures/copy.parquet", "other"),
    ],
)
def test_c30_a_copy_of_any_name_prevents_the_certificate(scenario: Scenario, name: str, columns: str | None) -> None:
    scenario.play("land b=1 c=1", "ask a")
    path = on_disk(scenario.loaded().location()) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = rows_of(History().records("a=1"))
    pq.write_table(rows.rename_columns([f"{columns}{one}" for one in rows.column_names]) if columns else rows, path)
    assert scenario.answer("certify")[0].startswith("no certificate: ")


@pytest.mark.nightly
def test_c30_a_key_that_comes_back_in_a_file_of_another_table_of_firn_is_erased(
    scenario: Scenario, tmp_path: Path
) -> None:
    other = Scenario(scenario.opened, tmp_path)
    other.play("land a=1 | e=1", "merge!")
    scenario.play("land b=1@5 c=1", "erased a")
    add(scenario.opened.lake, scenario.name, [], data_files(other.loaded()))
    assert scenario.answer("erase!") == ["1 to 1 segments, 2 to 1 records; erased 1"]
    assert scenario.answer("read") == ["e=1@1 b=1@5 c=1@6"]


@pytest.mark.parametrize("look", [lambda one: one.answer("requests"), lambda one: one.answer("certify")])
def test_c30_a_process_that_saw_the_first_try_of_a_request_knows_the_second(
    scenario: Scenario, look: Callable[[Scenario], object]
) -> None:
    scenario.answer("land b=1 c=1")

    def late() -> None:
        look(scenario)
        scenario.answer("append a=1@2 d=1@3")

    lake = watched(scenario.opened.lake, Nth(1, late, only="before commit"))
    asked = OpenCatalog(lake, lambda: scenario.now, scenario.opened.engine).table(scenario.name).erase(b"a")
    assert asked.log_ends == {0: 4}
    scenario.play("append e=1@4", "erase!")
    assert scenario.answer("read") == ["b=1@0 c=1@1 d=1@3 e=1@4"]


@pytest.mark.nightly
def test_c30_a_certificate_is_never_written_again(scenario: Scenario) -> None:
    scenario.play("land a=1 b=1", "erased a")
    (path,) = documents(scenario, "*.certificate.json")
    content = path.read_bytes()
    assert b"logs of Airflow, Spark and other engines" in content, "not covered (R23)"
    scenario.play("certify again", "later 9d", "maintain")
    (page,) = scenario.table.certify(path.name.partition(".")[0]).pages.values()
    assert "Certificate of erasure" in page.read_text(encoding="utf-8")
    assert path.read_bytes() == content
    (copy,) = (scenario.opened.lake.home / "reports" / "erasures" / scenario.name).glob("request-*.json")
    assert json.loads(copy.read_bytes()) == json.loads(content)


def test_c30_a_changed_certificate_does_not_hold(scenario: Scenario) -> None:
    scenario.play("land a=1 b=1", "erased a")
    (path,) = documents(scenario, "*.certificate.json")
    path.write_bytes(path.read_bytes().replace(b'"in_time": true', b'"in_time": false'))
    assert "it has been changed since it was issued" in scenario.answer("certify again")[0]


def test_c30_a_lost_or_damaged_request_stops_the_table_and_is_named(scenario: Scenario) -> None:
    scenario.play("land a=1 b=1", "ask a", "erase!")
    (path,) = documents(scenario, f"{'[0-9a-f]' * 32}.json")
    content = path.read_bytes()
    path.unlink()
    assert "to erase keys is lost; allowed: its document" in scenario.answer("run!")[0]
    path.write_bytes(content)
    other = path.with_name(f"{'0' * 32}.json")
    other.write_bytes(content[:-9])
    said = scenario.answer("run!")[0]
    assert "<id>.json is not readable: " in said
    assert "; allowed: the document as Firn wrote it" in said
    other.unlink()
    assert scenario.answer("requests")[0] == "erased"


def test_c30_status_says_when_older_snapshots_expire_by_the_age_of_main(scenario: Scenario) -> None:
    scenario.play("land a=1 b=1", "later 0")
    table, hour_ms = scenario.loaded(), 3_600_000
    aged = table.metadata.refs["main"].model_dump(by_alias=True) | {"max-snapshot-age-ms": hour_ms}
    update = SetSnapshotRefUpdate.model_validate({**aged, "ref-name": "main"})
    scenario.opened.lake.catalog.commit_table(table, (), (update,))
    scenario.play("ask a --within 2h")
    asked = scenario.loaded()
    ((_, problems),) = obstacles(scenario.opened.lake, asked, scenario.name, erasures_of(asked))
    landed = table.current_snapshot()
    assert landed
    assert show_ms(landed.timestamp_ms + hour_ms) in problems[-1].why
