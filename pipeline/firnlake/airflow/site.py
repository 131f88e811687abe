"""Firn's pages as a FastAPI application inside Airflow's API server.

Every route requires the permission to see plugins. A page of a table also requires the permission to read the table's
DAG. The pages use no catalog: they show the status that the last run wrote under ``$FIRN_HOME``
(``firnlake.inspect.status``).
"""

from functools import cache
from http import HTTPStatus
from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag, requires_access_view
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from firnlake import clock
from firnlake.airflow.configuration import dag_id_of, home
from firnlake.airflow.pages import CONTENT_POLICY, overview_html, problem_html, table_html
from firnlake.inspect import status as stored
from firnlake.inspect.status import PartitionCondition, Status
from firnlake_expectations.data_quality import table_of

HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    # Pages may show keys, so no proxy may cache the pages, and a browser must not show them after a log-out.
    "Cache-Control": "private, no-cache",
}


def may_read(table: str, request: Request, user: GetUserDep) -> None:
    """Refuse users who may not read the DAG of ``table``, as Airflow's own routes do."""
    requires_access_dag("GET", param_dag_id=dag_id_of(table))(request, user)


OfReadableTable = Depends(may_read)


@cache
def site() -> FastAPI:
    """The application. Users who are not logged in, or may not see plugins, can't open its pages."""
    app = FastAPI(
        title="Firn",
        dependencies=[Depends(requires_access_view(AccessView.PLUGINS))],
        default_response_class=HTMLResponse,
        # FastAPI's own pages would be open to everyone.
        openapi_url=None,
    )
    app.get("/")(all_tables)
    app.get("/tables/{table}", dependencies=[OfReadableTable])(one_table)
    app.get("/reports/index.html", response_class=RedirectResponse)(to_all_tables)
    app.get("/reports/{path:path}", response_class=FileResponse)(report)
    app.exception_handler(StarletteHTTPException)(refused)
    return app


def all_tables(user: GetUserDep) -> HTMLResponse:
    """The overview of all tables that the user may see."""
    return _html(overview_html(_statuses(user), clock.now_ms()))


def one_table(
    table: str, text: Annotated[str, Query(max_length=200)] = "", shown: PartitionCondition | None = None
) -> HTMLResponse:
    """The page of one table."""
    return _html(table_html(_status(table), clock.now_ms(), text, shown))


def to_all_tables() -> str:
    """The front page of the reports, to which their pages link, would show tables that the user may not see."""
    return "../"


def report(path: str, request: Request, user: GetUserDep) -> FileResponse:
    """The data-quality report on a table or a plan, or a certificate (its page or its document)."""
    reports = home() / "reports"
    table = table_of(reports, path)
    if table is None:
        raise HTTPException(
            HTTPStatus.NOT_FOUND, f"There is no report {path}. A run writes the pages of what it has judged."
        )
    may_read(table, request, user)
    return FileResponse(reports / path, headers=HEADERS)


def refused(request: Request, error: StarletteHTTPException) -> HTMLResponse:
    """The page for HTTP errors: not logged in, not allowed, not found."""
    code = HTTPStatus(error.status_code)
    if code is HTTPStatus.UNAUTHORIZED:
        login = get_auth_manager().get_url_login(next_url=str(request.url))
        return _problem(code, "Log in to see Firn's pages.", login)
    return _problem(code, str(error.detail))


def _status(table: str) -> Status:
    document = stored.read(home(), table)
    if document is None:
        known = "In every run of the table's DAG, the task `report` writes the status."
        raise HTTPException(HTTPStatus.NOT_FOUND, f"Table {table} has no status that can be read. {known}")
    return document


def _statuses(user: GetUserDep) -> dict[str, Status | None]:
    """The status of each table whose DAG the user may read; None where it can't be read."""
    dags = {table: dag_id_of(table) for table in stored.tables(home())}
    allowed = get_auth_manager().filter_authorized_dag_ids(dag_ids=set(dags.values()), user=user)
    return {table: stored.read(home(), table) for table, dag_id in dags.items() if dag_id in allowed}


def _problem(code: HTTPStatus, text: str, way_out: str | None = None) -> HTMLResponse:
    return HTMLResponse(problem_html(code.phrase, text, way_out), code, HEADERS)


def _html(text: str) -> HTMLResponse:
    return HTMLResponse(text, headers=HEADERS)
