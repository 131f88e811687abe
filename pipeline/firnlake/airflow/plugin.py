"""The Airflow plugin: Firn's pages in the UI, behind Airflow's own login and permissions.

Airflow finds the plugin by the entry point ``airflow.plugins``. Every component of Airflow loads the plugin, so the
code of the pages is imported only when the API server asks for them.
"""

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from firnlake.airflow.site.links import PREFIX, ROUTE

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
        from firnlake.airflow.site.app import site

        return [{"app": site(), "url_prefix": PREFIX, "name": "Firn"}]
