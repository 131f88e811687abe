"""Addresses of Firn's pages in Airflow's UI, and the button under "Extra links" that leads to the page of a table."""

from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import attrs
from airflow.sdk import BaseOperatorLink, conf

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


PREFIX = "/firn"
"""Path under which the API server mounts Firn's pages."""
ROUTE = "firn"
"""Name of Firn's view in the UI, which shows these pages in its own frame."""


def address_of(page: str) -> str:
    """The absolute address of ``page`` inside the UI."""
    return f"{(conf.get('api', 'base_url', fallback='') or '').rstrip('/')}/{in_the_ui(page)}"


def in_the_ui(page: str) -> str:
    """The address of ``page`` inside the UI, relative to the API server's base URL.

    Such an address is the path of Firn's view in the UI, followed by the whole path of the framed page.
    """
    root = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
    return f"plugin/{ROUTE}{root}{PREFIX}/{page}"


@attrs.define
class TableLink(BaseOperatorLink):
    """Link to the page of a table, which links to its data-quality report."""

    table: str

    @property
    def name(self) -> str:
        return f"Firn: {self.table}"

    def get_link(self, operator: "BaseOperator", *, ti_key: "TaskInstanceKey") -> str:  # noqa: ARG002  # Airflow's
        """The address of the table's page. Airflow asks for the address when the task ends, and stores it."""
        return in_the_ui(f"tables/{quote(self.table, safe='')}")
