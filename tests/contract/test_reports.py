"""What the pages of `firn report` tell: all that went, what published it, and the certificates that there are."""

from tests.support.pages import text_of
from tests.support.scenario import Scenario


def test_pages_tell_what_went_and_what_published_it_when_the_snapshot_has_expired(scenario: Scenario) -> None:
    scenario.play(
        "alone",
        "log 1>a=1 1>b=1 c=1 1>abort c=2 d=1",
        "property history.expire.max-snapshot-age-ms=0",
        "firn run {table} --lane full --force --now {now} --engine local",
    )
    published = scenario.loaded().metadata.current_snapshot_id
    scenario.play("append e=1", "later 1m", "maintain", "firn report")
    assert scenario.loaded().snapshot_by_id(published or 0) is None
    reports = scenario.opened.lake.home / "reports"
    (plan,), (table,) = reports.glob("plans/*.html"), reports.glob("tables/*.html")
    assert f"<td><code>{published}</code></td>" in table.read_text()
    assert "Gone 1 superseded, 2 of aborted transactions " in text_of(plan)
    assert "2 of aborted transactions" in text_of(table)


def test_the_front_page_lists_a_certificate_as_soon_as_there_is_one(scenario: Scenario) -> None:
    scenario.play("alone", "land a=1 b=1", "erased a")
    front = (scenario.opened.lake.home / "reports" / "index.html").read_text(encoding="utf-8")
    assert f"erasures/{scenario.name}/request-" in front
