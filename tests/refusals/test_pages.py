"""C36: the data-quality page of a table tells what a mending took, at once and for as long as the table knows of it."""

from tests.support.pages import text_of
from tests.support.scenario import Scenario


def told(scenario: Scenario) -> str:
    return text_of(scenario.opened.lake.reports_folder / "tables" / f"{scenario.name}.html")


def test_a_mending_is_told_newest_first_until_nothing_knows_of_it(scenario: Scenario) -> None:
    for line in ("alone", "land a=1 a=2 | b=1 b=2", "files", "lose 0", "mend 0", "mend 1"):
        scenario.answer(line)
    lost, kept = scenario.named
    page = told(scenario)
    assert f"{kept} orders-0, offsets 2 to 3, 2 records; on branch firn_mended, until somebody drops the branch" in page
    assert f"{lost} orders-0, offsets 0 to 1, 2 records; lost: the store had no such file" in page
    assert page.index(kept) < page.index(lost)
    assert page.count(", offsets 0 to 1,") == page.count(", offsets 2 to 3,") == 1
    for line in ("unref firn_mended", "firn report"):
        scenario.answer(line)
    assert told(scenario).count("no longer on branch firn_mended") == 1


def test_a_report_that_can_not_be_written_keeps_nobody_from_mending(scenario: Scenario) -> None:
    for line in ("alone", "land a=1 | b=1", "files"):
        scenario.answer(line)
    scenario.opened.lake.reports_folder.write_text("no folder")
    assert (scenario.answer("mend 1"), scenario.answer("read")) == ([], ["a=1@0"])
