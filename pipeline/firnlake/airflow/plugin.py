"""The Airflow plugin: Firn's pages in the UI, behind Airflow's own login and permissions, and links to them.

Airflow finds the plugin by the entry point ``airflow.plugins``. Every component of Airflow loads the plugin, so the
code of the pages is imported only when the API server asks for them.
"""

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import attrs
from airflow.plugins_manager import AirflowPlugin
from airflow.sdk import BaseOperatorLink, conf

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

PREFIX = "/firn"
"""Path under which the API server mounts Firn's pages."""
ROUTE = "firn"
"""Name of Firn's view in the UI, which shows these pages in its own frame."""
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24' fill='none' stroke='{ink}' "
    "stroke-width='2' stroke-linecap='round'%3E%3Cpath d='M9 5h6M7 10h10M5 15h14M3 20h18'/%3E%3C/svg%3E"
)
"""Icon with layers that widen downwards: few segments at the top, most of the bytes in the tail."""


class FirnPlugin(AirflowPlugin):
    """One entry in the navigation, which frames the pages."""

    name = "firn"
    external_views = [  # noqa: RUF012  # Airflow's own form
        {
            "name": "Firn",
            # Relative to the server's base URL, so that it works behind any proxy.
            "href": f"{PREFIX.removeprefix('/')}/",
            "url_route": ROUTE,
            "destination": "nav",
            "nav_top_level": True,
            "icon": _ICON.format(ink="%237b92b3"),
            "icon_dark_mode": _ICON.format(ink="%2393a9c6"),
        }
    ]

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]  # read by the API server alone
        """The pages as an application for the API server to mount."""
        from firnlake.airflow.site import site

        return [{"app": site(), "url_prefix": PREFIX, "name": "Firn"}]


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
    """Button under "Extra links" that leads to the page of a table, which links to its data-quality report."""

    table: str

    @property
    def name(self) -> str:
        return f"Firn: {self.table}"

    def get_link(self, operator: "BaseOperator", *, ti_key: "TaskInstanceKey") -> str:  # noqa: ARG002  # Airflow's
        """The address of the table's page. Airflow asks for the address when the task ends, and stores it."""
        return in_the_ui(f"tables/{quote(self.table, safe='')}")
