"""Addresses of Firn's pages in Airflow's UI, and the buttons under "Extra links" that lead to them."""

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

import attrs
from airflow.sdk import BaseOperatorLink, conf

from firnlake.clock import parse

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


PREFIX = "/firn"
"""Path under which the API server mounts Firn's pages."""
ROUTE = "firn"
"""Name of Firn's view in the UI, which shows these pages in its own frame."""


def address_of(table: str, page: str = "", **query: object) -> str:
    """The absolute address of a page of ``table`` inside the UI."""
    return f"{(conf.get('api', 'base_url', fallback='') or '').rstrip('/')}/{in_the_ui(table, page, **query)}"


def in_the_ui(table: str, page: str = "", **query: object) -> str:
    """The address of a page of ``table`` inside the UI, relative to the API server's base URL.

    Such an address is the path of Firn's view in the UI, followed by the whole path of the framed page.
    """
    root = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
    path = f"plugin/{ROUTE}{root}{PREFIX}/tables/{quote(table, safe='')}{page}"
    return f"{path}?{urlencode(query)}" if query else path


AS_OF = "{{ (dag_run.logical_date or dag_run.run_after).isoformat() }}"
"""Template of the argument ``as_of`` of a task: the clock of the run's plans, which identifies the run's verdicts."""


@attrs.define
class TableLink(BaseOperatorLink):
    """Link to the page of a table."""

    table: str

    @property
    def name(self) -> str:
        return f"Firn: {self.table}"

    def get_link(self, operator: "BaseOperator", *, ti_key: "TaskInstanceKey") -> str:  # noqa: ARG002  # Airflow's
        """The address of the table's page. Airflow asks for the address when the task ends, and stores it."""
        return in_the_ui(self.table)


@attrs.define
class ReportLink(BaseOperatorLink):
    """Link to the verdicts of a run or, for a task without a clock, to the last verdicts on the table."""

    table: str

    @property
    def name(self) -> str:
        return "Data-quality report"

    def get_link(self, operator: "BaseOperator", *, ti_key: "TaskInstanceKey") -> str:  # noqa: ARG002  # Airflow's
        """The address of the list of verdicts. Airflow asks for it when the task ends, with rendered templates."""
        as_of = _as_of(operator)
        return in_the_ui(self.table, "/reports", **({"as_of": parse(as_of)} if as_of else {}))


def links_of(table: str) -> tuple[BaseOperatorLink, BaseOperatorLink]:
    """The links of a task on ``table``."""
    return ReportLink(table), TableLink(table)


def _as_of(operator: Any) -> str | None:
    arguments = getattr(operator, "op_kwargs", None) or {}
    clock: str | None = arguments.get("as_of") or getattr(operator, "as_of", None)
    return clock
