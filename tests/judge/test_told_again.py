"""What waits for a person is told once, and again each day (C20)."""

from firnlake.iceberg.files import metadata_folder
from firnlake.inspect.status import news, status_of
from firnlake.job.outcomes import AGAIN_MS
from infra.foreign.files import on_disk
from tests.support.records import NOW
from tests.support.scenario import Scenario


def told(scenario: Scenario, later_ms: int = 0, failed: tuple[str, ...] = ()) -> list[str]:
    lake = scenario.opened.lake
    return list(news(scenario.loaded(), status_of(lake, scenario.name, NOW), NOW + later_ms, failed))


def test_c20_a_cause_is_told_once_and_again_each_day_and_when_it_begins_again(scenario: Scenario) -> None:
    scenario.answer("create null.keys=fail")
    scenario.answer("land 1/-=x 2/a=1")
    assert told(scenario) == ["orders-1"]
    assert told(scenario, 1) == told(scenario, AGAIN_MS - 1) == []
    assert told(scenario, AGAIN_MS) == ["orders-1"]
    scenario.answer("land 1/-=x 3/-=x")
    assert told(scenario, AGAIN_MS + 1) == ["orders-3"], "the first has only got more of the same"
    scenario.answer("set null.keys=quarantine")
    assert told(scenario, AGAIN_MS + 2) == []
    scenario.answer("set null.keys=fail")
    assert told(scenario, AGAIN_MS + 3) == ["orders-1", "orders-3"]


def test_a_plan_that_failed_in_this_run_is_told_by_its_failure(scenario: Scenario) -> None:
    scenario.answer("land a=1 | a=2")
    scenario.answer("files")
    scenario.answer("tear 1")
    scenario.answer("full")
    assert told(scenario, failed=("orders-0",)) == told(scenario, 1) == []
    assert told(scenario, AGAIN_MS) == ["orders-0"]


def test_a_damaged_memory_is_forgotten(scenario: Scenario) -> None:
    scenario.answer("create null.keys=fail")
    scenario.answer("land 1/-=x")
    status, table = status_of(scenario.opened.lake, scenario.name, NOW), scenario.loaded()
    assert list(news(table, status, NOW)) == ["orders-1"]
    for content in (b"", b"{", b'{"orders-1 uncleanable": "x"}', b"[1]"):
        on_disk(f"{metadata_folder(table)}/told.json").write_bytes(content)
        assert (list(news(table, status, NOW)), list(news(table, status, NOW + 1))) == (["orders-1"], []), content
