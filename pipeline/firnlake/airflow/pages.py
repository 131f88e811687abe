"""Firn's pages as HTML text, made from facts. This module needs neither Airflow nor HTTP, so it can be tested alone.

Text from tables is untrusted: jinja2 escapes it, and the pages run no script.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader

from firnlake.clock import show_span
from firnlake.inspect.status import PartitionCondition, Status
from firnlake_expectations.data_quality import environment as pages
from firnlake_expectations.data_quality import report_of
from firnlake_expectations.wording import size

NOTHING = "–"


def known(filter_of: Callable[[Any], str]) -> Callable[[Any], str]:
    """The filter, with a dash for None."""
    return lambda value: NOTHING if value is None else filter_of(value)


def percent(ratio: float) -> str:
    """A ratio from 0 to 1 as ``62 %``; rounded down, so that 100 % means exactly 1."""
    return f"{int(ratio * 100)} %"


def ago(at_ms: int, now_ms: int) -> str:
    """The time since ``at_ms``: ``3 h 20 min ago``; ``just now`` if the clocks of two machines differ."""
    passed = now_ms - at_ms
    return f"{show_span(passed)} ago" if passed >= 1000 else "just now"


TEMPLATES: Final = Path(__file__).parent / "templates"

TOPICS_SHOWN: Final = 50
"""Maximum number of topics listed, largest first; ``firn status`` lists all."""
PARTS_SHOWN: Final = 100
"""Maximum number of topic partitions listed, the worst first; a search finds the others."""

CONTENT_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
)
"""Content policy: pages load nothing and run no script, whatever topic names contain; only Airflow's pages may frame
Firn's pages."""


def overview_html(statuses: Mapping[str, Status | None], now_ms: int) -> str:
    """The page of all tables; the status of some can't be read."""
    known = [one for one in statuses.values() if one]
    return _page("overview.html.j2", home="", statuses=known, tables=statuses, now_ms=now_ms)


def table_html(status: Status, now_ms: int, text: str = "", shown: PartitionCondition | None = None) -> str:
    """The page of one table, with the topic partitions that mention ``text``, in the condition ``shown`` or in any."""
    parts = status.found(text, shown)
    largest = sorted(status.topics, key=lambda topic: -(topic.main_bytes + topic.side_bytes))
    return _page(
        "table.html.j2",
        home="../",
        status=status,
        topics=largest[:TOPICS_SHOWN],
        parts=parts[:PARTS_SHOWN],
        found=len(parts),
        text=text,
        shown=shown,
        now_ms=now_ms,
    )


def problem_html(title: str, text: str, way_out: str | None = None) -> str:
    """The page for an error, described by ``text``; ``way_out`` is the address of a login page."""
    return _page("problem.html.j2", home="", title=title, text=text, way_out=way_out)


def _page(template: str, **facts: Any) -> str:
    return _environment().get_template(template).render(facts)


@cache
def _environment() -> Environment:
    environment = pages()
    environment.loader = FileSystemLoader(TEMPLATES)
    environment.filters.update(
        number=known("{:,}".format),
        size=known(size),
        percent=percent,
        ratio=known("{:,.2f}".format),
        span=known(show_span),
        segment=lambda name: quote(name, safe=""),
    )
    environment.globals.update(conditions=list(PartitionCondition), ago=ago, report_of=report_of)
    return environment
