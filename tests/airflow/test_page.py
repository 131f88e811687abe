"""The Firn page in a real API server: behind Airflow's login, fast, and linked from the tasks of a run."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from urllib.parse import quote

import pytest

from firnlake.clock import now_ms
from firnlake.engine.engine import LocalEngine
from firnlake.inspect.status import read
from firnlake.lanes import Lane
from firnlake.lanes.erasure.requests import ask, erasures_of
from firnlake.maintain.maintain import maintain_table
from firnlake.run import run
from firnlake.table import records
from tests.airflow.conftest import LocalAirflow
from tests.airflow.server import Server, at_free_port, logged_in
from tests.support.pages import parts_of, write_overview

pytestmark = pytest.mark.nightly

TABLE, DAG_ID = "t.shown", "firn__t__shown"
ERASED, MANY, TORN = "shop.erased", "t.many", "t.torn-file"
DAY_MS = 86_400_000


@dataclass(frozen=True)
class Answer:
    """The server's answer."""

    status: int
    text: str
    headers: dict[str, str]


@dataclass(frozen=True)
class ApiServer:
    """A running API server, and the cookie of somebody who is logged in (empty: nobody is)."""

    port: int
    cookie: str = field(default="", repr=False)

    def get(self, path: str, cookie: str | None = None) -> Answer:
        """``path`` as it is, dots and all; browsers would tidy it up first."""
        headers = {"Cookie": self.cookie if cookie is None else cookie}
        return self.ask("GET", path, headers)

    def ask(self, method: str, path: str, headers: dict[str, str], body: str | None = None) -> Answer:
        server = HTTPConnection("127.0.0.1", self.port, timeout=30)
        server.request(method, path, body, headers)
        found = server.getresponse()
        return Answer(found.status, found.read().decode(), {name.lower(): value for name, value in found.getheaders()})


@pytest.fixture(scope="module")
def api(airflow: LocalAirflow) -> Iterator[ApiServer]:
    """The API server alone, after a run of a table's DAG; a table of 10,000 topic partitions and a torn file beside."""
    airflow.land(TABLE, {0: ["a=1", "b=1"]}, {0: ["a=2", "b="]})
    assert airflow.run(TABLE, {"lane": "full", "force": True}).succeeded
    write_overview(airflow.home, MANY, parts_of(10_000))
    write_overview(airflow.home, TORN).write_bytes(b"torn")
    write_overview(airflow.home, ERASED, parts_of(3))
    erase(airflow)
    port, environment = at_free_port(airflow)
    server = Server(f"http://127.0.0.1:{port}", airflow.home / "airflow", environment, {})
    server.start("api-server")
    try:
        nobody = ApiServer(port)
        server.until(lambda: answers(nobody))
        yield ApiServer(port, f"_token={logged_in(server).token}")
    finally:
        server.kill("api-server")


def erase(airflow: LocalAirflow) -> None:
    """Key `a` goes from table ERASED, and from its history, and is certified."""
    records.create(airflow.lake, ERASED, {"history.expire.max-snapshot-age-ms": "1"})
    airflow.land(ERASED, {0: ["a=1", "b=1", "a=2", "c=1"]})
    ask(airflow.lake, ERASED, [(b"a",)], now_ms())
    runs = run(airflow.lake, ERASED, now_ms(), lambda _: LocalEngine(), (Lane.ERASE,), force=True)
    assert [one.failures for one in runs] == [{}]
    maintain_table(airflow.lake, ERASED, now_ms() + 10 * DAY_MS, remove=True)


def answers(api: ApiServer) -> bool:
    try:
        api.get("/api/v2/monitor/health")
    except (OSError, HTTPException):
        return False
    return True


@pytest.mark.parametrize(
    "path", ["/firn/", f"/firn/tables/{TABLE}", f"/firn/reports/tables/{TABLE}.html", "/firn/reports/index.html",
             f"/firn/reports/erasures/{ERASED}/request-{'0' * 32}.html",
             f"/firn/reports/erasures/{ERASED}/request-{'0' * 32}.json", "/firn/reports/plans/any.html",
             "/firn/tables/none?text="]
)  # fmt: skip
def test_who_is_not_logged_in_sees_nothing(api: ApiServer, path: str) -> None:
    for cookie in ("", "_token=forged"):
        found = api.get(path, cookie)
        assert found.status in (401, 403)
        assert "<table" not in found.text
    assert "/auth/login" in api.get(path, "").text
    assert [api.get(f"/firn/{name}", "").status for name in ("docs", "redoc", "openapi.json")] == [404, 404, 404]


def test_the_view_is_in_the_navigation(api: ApiServer) -> None:
    (plugin,) = (one for one in json.loads(api.get("/api/v2/plugins").text)["plugins"] if one["name"] == "firn")
    (view,) = plugin["external_views"]
    assert (view["href"], view["url_route"], view["destination"]) == ("firn/", "firn", "nav")
    assert json.loads(api.get("/api/v2/plugins/importErrors").text)["total_entries"] == 0


def test_the_overview_has_all_tables_and_names_the_torn_one(api: ApiServer) -> None:
    found = api.get("/firn/")
    assert found.status == 200
    assert "frame-ancestors 'self'" in found.headers["content-security-policy"]
    assert f'href="tables/{TABLE}"' in found.text
    assert f'href="tables/{MANY}"' in found.text
    assert f"{TORN}: its status can't be read" in found.text


def test_the_page_of_a_table_shows_what_the_run_did(api: ApiServer, airflow: LocalAirflow) -> None:
    found = api.get(f"/firn/tables/{TABLE}")
    status = read(airflow.home, TABLE)
    assert status is not None
    (publication,) = status.publications
    assert (found.status, publication.counts.records_in) == (200, 4)
    assert [part.name for part in status.found()] == ["orders-0"]
    assert f'href="../reports/tables/{TABLE}.html"' in found.text
    assert str(publication.snapshot_id) in found.text


def test_reports_are_served_and_nothing_else_is(api: ApiServer, airflow: LocalAirflow) -> None:
    verdicts = {path.stem: json.loads(path.read_text()) for path in (airflow.home / "reports/verdicts").glob("*.json")}
    (name,) = (name for name, verdict in verdicts.items() if verdict["claim"]["table"] == TABLE)
    for path in (f"tables/{TABLE}.html", f"plans/{name}.html"):
        page = api.get(f"/firn/reports/{path}")
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "orders-0" in page.text
    assert f"../plans/{name}.html" in api.get(f"/firn/reports/tables/{TABLE}.html").text
    front = api.get("/firn/reports/index.html")
    assert (front.status, front.headers["location"]) == (307, "../")
    outside = (
        "../catalog.db",
        "..%2fcatalog.db",
        "plans/%2e%2e/%2e%2e/catalog.db",
        "%2fetc%2fpasswd",
        "..%5ccatalog.db",
    )
    for path in (*outside, "results", f"verdicts/{name}.json", "plans/none.html", "plans/%00.html"):
        assert api.get(f"/firn/reports/{path}").status == 404, path


def test_c30_certificates_are_served(api: ApiServer, airflow: LocalAirflow) -> None:
    (erasure,) = erasures_of(airflow.lake.table(ERASED))
    name = f"request-{erasure.request.id}"
    place = f"reports/erasures/{ERASED}/{name}"
    page, document = api.get(f"/firn/{place}.html"), api.get(f"/firn/{place}.json")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "no-cache" in page.headers["cache-control"]
    assert (document.status, document.headers["content-type"]) == (200, "application/json")
    assert json.loads(document.text)["sha256"] in page.text
    assert api.get(f"/firn/reports/erasures/{ERASED}/../{ERASED}/{name}.json").status == 404


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("tables/no.table", 404, "Table no.table has no status that can be read"),
        (f"tables/{quote('<script>alert(1)')}", 404, "&lt;script&gt;"),
        (f"tables/{TORN}", 404, f"Table {TORN} has no status that can be read"),
        (f"tables/{MANY}?text={'x' * 300}", 422, '"text"'),
        (f"tables/{MANY}?shown=%3Cb%3E", 422, '"shown"'),
        ("no/page", 404, "Not Found"),
    ],
)
def test_what_can_not_be_shown_says_why(api: ApiServer, path: str, status: int, said: str) -> None:
    found = api.get(f"/firn/{path}")
    assert found.status == status
    assert said in found.text
    assert "<script>" not in found.text
    assert "Traceback" not in found.text


def test_pages_of_ten_thousand_topic_partitions(api: ApiServer, record_property: Callable[[str, object], None]) -> None:
    seconds = []
    for _ in range(30):
        started = time.perf_counter()
        found = api.get(f"/firn/tables/{MANY}?text=orders")
        seconds.append(time.perf_counter() - started)
        assert "10,000 of 10,000 topic partitions" in found.text
    seconds.sort()
    record_property(
        "ms for a page of 10,000 topic partitions, median and slowest",
        [round(seconds[place] * 1000) for place in (15, -1)],
    )


def test_tasks_of_a_run_link_to_its_pages(api: ApiServer, airflow: LocalAirflow) -> None:
    (run,) = json.loads(api.get(f"/api/v2/dags/{DAG_ID}/dagRuns").text)["dag_runs"]
    links = {f"Firn: {TABLE}": f"plugin/firn/firn/tables/{TABLE}"}
    for where in ("report", "full.jobs.validate?map_index=0", "full.publish"):
        task, _, index = where.partition("?")
        path = f"/api/v2/dags/{DAG_ID}/dagRuns/{quote(run['dag_run_id'])}/taskInstances/{task}/links?{index}"
        assert json.loads(api.get(path).text)["extra_links"] == links
