"""Where Firn's pages are in Airflow's UI."""

from urllib.parse import quote, urlencode, urlsplit

from airflow.sdk import conf

PREFIX = "/firn"
"""Where the API server mounts Firn's pages."""
ROUTE = "firn"
"""The name of Firn's view in the UI, which shows these pages in its own frame."""


def address_of(table: str, page: str = "", **query: object) -> str:
    """The whole address of a page of ``table`` inside the UI."""
    return f"{(conf.get('api', 'base_url', fallback='') or '').rstrip('/')}/{in_the_ui(table, page, **query)}"


def in_the_ui(table: str, page: str = "", **query: object) -> str:
    """The address of a page of ``table`` inside the UI, relative to the API server's base URL, whatever that is.

    The UI has the path of the page that it frames, from the host on, after that of its own view.
    """
    root = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
    path = f"plugin/{ROUTE}{root}{PREFIX}/tables/{quote(table, safe='')}{page}"
    return f"{path}?{urlencode(query)}" if query else path
