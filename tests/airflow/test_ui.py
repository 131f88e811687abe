"""Firn as a person sees it: in a browser, through Airflow's own UI, with a user and a password.

The tests are one visit, in the order in which they stand here. `make pictures` keeps what it sees in docs/images.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect
from playwright.sync_api import TimeoutError as BrowserTimeoutError

from firnlake.airflow.configuration import dag_id_of
from infra.demo import producer
from tests.airflow import browser
from tests.airflow.browser import LOCAL, Visitor, visiting
from tests.airflow.conftest import LocalAirflow, make
from tests.airflow.server import HANGS, Server, question, serving
from tests.support.pages import parts_of, write_overview

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(browser.CHROMIUM is None, reason=browser.MISSING),
]

ORDERS, CARTS = "shop.orders", producer.TABLE
LEAP_DAY = 'schedule = "0 0 29 2 *"'
"""By the clock in leap years: what starts the DAG sooner is something else."""

LARGEST = "web.clicks"
MADE_UP = {"crm.customers": 64, LARGEST: 10_000, "web.carts": 4}
"""Tables of which Firn's pages know a status only, and their numbers of topic partitions."""
MAPPED = re.compile("orders-[0-2] and 2 more")
START = datetime(2026, 11, 21, 12, tzinfo=UTC)


def run_of(server: Server, table: str) -> str:
    """The path of the page of the table's only run."""
    (run,) = server.runs(dag_id_of(table))
    return f"/dags/{dag_id_of(table)}/runs/{run['dag_run_id']}"


def state_of(page: Page) -> Locator:
    """The state in the header of a run's page."""
    return page.get_by_test_id("state-badge").first


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory, migrated: Path) -> LocalAirflow:
    # Nobody but the visitor starts the one, and nobody but the watcher the other.
    tables = {ORDERS: f"{LEAP_DAY}\nwatched = false", CARTS: LEAP_DAY}
    made = make(tmp_path_factory.mktemp("shop"), tables, migrated)
    made.land(ORDERS, {0: ["a=1", "b=1"], 1: ["x=1"], 2: ["q=1"]}, {0: ["a=2"], 1: ["x=2"], 2: ["q="]})
    return made


@pytest.fixture(scope="module")
def server(airflow: LocalAirflow) -> Iterator[Server]:
    with serving(airflow) as running:
        yield running


@pytest.fixture(scope="module")
def visitor(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    pictures = Path(os.environ.get("FIRN_PICTURES") or tmp_path_factory.mktemp("pictures"))
    with visiting(server.url, pictures) as here:
        yield here


def test_logging_in_shows_a_dag_per_table(server: Server, visitor: Visitor) -> None:
    page = visitor.page
    page.goto("/")
    page.get_by_label("Username").fill(server.user)
    page.get_by_label("Password").fill(server.password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="Dags", exact=True).click()
    for table in (ORDERS, CARTS):
        expect(page.get_by_role("link", name=dag_id_of(table))).to_be_visible()
    visitor.picture("ui-dags")


def test_the_graph_shows_a_group_per_lane(visitor: Visitor) -> None:
    page = visitor.page
    page.goto(f"/dags/{dag_id_of(ORDERS)}")
    page.get_by_role("button", name="Show Graph").click()
    page.get_by_role("button", name="Options").click()
    page.get_by_role("combobox", name="Graph Direction").click()
    page.get_by_role("option", name="Top to Bottom").click()
    page.keyboard.press("Escape")
    for lane in ("retain", "erase", "convert", "merge", "clean", "tier", "full"):
        expect(page.get_by_test_id(f"rf__node-{lane}")).to_be_visible()
    visitor.picture("ui-graph")
    page.get_by_role("button", name="Show Grid").click()


def test_a_lane_is_triggered_with_the_form(visitor: Visitor) -> None:
    page = visitor.page
    page.goto(f"/dags/{dag_id_of(ORDERS)}")
    page.get_by_test_id("trigger-dag-button").click()
    form = page.get_by_role("dialog")
    lane = form.get_by_role("combobox", name="lane")
    lane.fill("full")
    lane.press("Enter")
    visitor.picture("ui-form")
    for name in ("force", "ask"):
        switch = form.get_by_role("checkbox", name=name)
        switch.press(" ")
        expect(switch).to_be_checked()
    form.get_by_role("button", name="Trigger", exact=True).click()
    page.wait_for_url(f"**/dags/{dag_id_of(ORDERS)}/runs/manual__*")


def test_it_asks_before_it_publishes_and_succeeds(airflow: LocalAirflow, visitor: Visitor, server: Server) -> None:
    page = visitor.page
    before = airflow.seen(ORDERS)
    question(server, dag_id_of(ORDERS))
    page.goto(f"{run_of(server, ORDERS)}/tasks/full.publish/required_actions")
    expect(page.get_by_role("cell", name="orders-2")).to_be_visible()
    visitor.picture("ui-ask")
    assert airflow.seen(ORDERS) == before
    page.get_by_role("button", name="Publish", exact=True).click()

    page.goto(run_of(server, ORDERS))
    expect(state_of(page)).to_have_text(re.compile("Success|Failed"), timeout=1000 * HANGS)
    expect(state_of(page)).to_have_text("Success")
    visitor.picture("ui-run")
    # What the run's colours say is so: the newest record of every key, and the tombstone that is not past its horizon.
    assert airflow.seen(ORDERS) == {0: [(1, "b", "1"), (2, "a", "2")], 1: [(1, "x", "2")], 2: [(1, "q", None)]}


def test_mapped_tasks_say_what_they_work_on(server: Server, visitor: Visitor) -> None:
    page = visitor.page
    page.goto(f"{run_of(server, ORDERS)}/tasks/full.jobs.compact/mapped")
    expect(page.get_by_role("link", name=MAPPED).first).to_be_visible()
    visitor.picture("ui-mapped")


def test_the_report_is_opened_from_the_run(server: Server, visitor: Visitor) -> None:
    page = visitor.page
    page.goto(f"{run_of(server, ORDERS)}/tasks/report/details")
    page.get_by_role("link", name=f"Firn: {ORDERS}").click()
    page.frame_locator("iframe").get_by_role("link", name="Data-quality report").click()
    expect(page.frame_locator("iframe").get_by_text("orders-0").first).to_be_visible()
    visitor.picture("ui-report")


def test_the_firn_page_is_opened_from_the_navigation(airflow: LocalAirflow, visitor: Visitor) -> None:
    for table, topic_partitions in MADE_UP.items():
        write_overview(airflow.home, table, parts_of(topic_partitions))
    page = visitor.page
    page.goto("/")
    page.get_by_role("link", name="Firn", exact=True).click()
    firn = page.frame_locator("iframe")
    expect(firn.get_by_role("heading", name="Firn", exact=True)).to_be_visible()
    expect(firn.get_by_role("link", name=ORDERS)).to_be_visible()
    visitor.picture("firn-page")
    firn.get_by_role("link", name=LARGEST).click()
    expect(firn.get_by_role("heading", name=LARGEST)).to_be_visible()
    visitor.picture("firn-table")


def test_a_run_that_the_watcher_started_says_why(airflow: LocalAirflow, server: Server, visitor: Visitor) -> None:
    page = visitor.page
    server.unpause(dag_id_of(CARTS))
    producer.produce(airflow.lake, (START + number * timedelta(seconds=5) for number in range(2)))
    server.until(lambda: server.runs(dag_id_of(CARTS)))
    page.goto(f"{run_of(server, CARTS)}/asset_events")
    expect(page.get_by_text("Asset Triggered")).to_be_visible()
    folded = page.locator(".codicon-folding-collapsed")
    reason = page.get_by_text(re.compile(r"carts-0\sfull:\s2\ssegments"))

    def told() -> bool:
        """Airflow folds what an event carries, level by level, and folds it again when the page asks anew."""
        if not reason.is_visible() and folded.count():
            with suppress(BrowserTimeoutError):
                folded.first.click(timeout=1_000)
        return reason.is_visible()

    server.until(told)
    visitor.picture("ui-watcher")


def test_nothing_was_asked_of_the_internet(visitor: Visitor) -> None:
    """The last of the visit: pages that need the internet would be half empty where there is none."""
    assert visitor.hosts == {LOCAL}
