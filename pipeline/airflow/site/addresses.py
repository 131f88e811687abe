"""Addresses of Firn's pages in Airflow's UI."""

from urllib.parse import quote, urlencode, urlsplit

from airflow.sdk import conf

PREFIX = "/firn"
"""Path under which the API server mounts Firn's pages."""
ROUTE = "firn"
"""Name of Firn's view in the UI, which shows these pages in its own frame."""


def address_of(table: str, page: str = "", **query: object) -> str:
    """The absolute address of a page of ``table`` inside the UI."""
    return f"{(conf.get('api', 'base_url', fallback='') or '').rstrip('/')}/{in_the_ui(table, page, **query)}"


def in_the_ui(table: str, page: str = "", **query: object) -> str:
    """The address of a page of ``table`` inside the UI, relative to the API server's base URL.

    In the UI's addresses, the path of its own view is followed by the path of the framed page, starting at the host.
    """
    root = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
    path = f"plugin/{ROUTE}{root}{PREFIX}/tables/{quote(table, safe='')}{page}"
    return f"{path}?{urlencode(query)}" if query else path
