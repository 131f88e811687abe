"""Render the templates. Text from tables is untrusted: jinja2 escapes it, and the pages run no script."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from expectations.wording import shown
from pipeline.airflow.site.page import wording
from pipeline.airflow.site.page.picture import alone, stacked
from pipeline.status import Certificates, LaneVerdict, Query, Shown, Sort, Status, Summary

TEMPLATES: Final = Path(__file__).parent / "templates"

NO_CERTIFICATES: Final = Certificates()
TOPICS_SHOWN: Final = 50
"""Maximum number of topics listed, largest first; ``firn status`` lists all."""

CONTENT_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
)
"""Content policy: pages load nothing and run no script, regardless of topic names; only Airflow's pages may frame
them."""


def overview_html(summaries: Sequence[Summary], broken: Mapping[str, str], now_ms: int) -> str:
    """The page of all tables; ``broken`` has the tables whose status can't be read, with the reason."""
    return _page("overview.html.j2", home="", summaries=summaries, broken=broken, now_ms=now_ms)


def table_html(status: Status, query: Query, now_ms: int, certificates: Certificates = NO_CERTIFICATES) -> str:
    """The page of one table, with the topic partitions that ``query`` asks for and its newest ``certificates``.

    Raises RefusedError for a file whose details are not Firn's.
    """
    details = status.details()
    largest = sorted(details.topics, key=lambda topic: -(topic.main_bytes + topic.side_bytes))
    return _page(
        "table.html.j2",
        home="../",
        summary=status.summary,
        details=details,
        topics=largest[:TOPICS_SHOWN],
        page=status.page(query),
        query=query,
        certificates=certificates,
        now_ms=now_ms,
    )


def certificates_html(table: str, certificates: Certificates) -> str:
    """The page with the list of a table's ``certificates``."""
    return _page("erasures.html.j2", home="../../", table=table, certificates=certificates)


def reports_html(home: str, table: str | None, verdicts: Sequence[LaneVerdict], as_of_ms: int | None = None) -> str:
    """The page with a list of verdicts on one ``table`` or several (None); ``home`` is the link to the overview.

    ``as_of_ms``, if given, is the clock of the plans of the one run that the verdicts belong to.
    """
    return _page("reports.html.j2", home=home, table=table, verdicts=verdicts, as_of_ms=as_of_ms)


def problem_html(title: str, text: str, way_out: str | None = None) -> str:
    """The page for an error, in a sentence; ``way_out`` is the address of a login page."""
    return _page("problem.html.j2", home="", title=title, text=text, way_out=way_out)


def _page(template: str, **facts: Any) -> str:
    return _environment().get_template(template).render(facts)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=wording.number,
        size=wording.size,
        percent=wording.percent,
        ratio=wording.ratio,
        span=wording.span,
        moment=wording.moment,
        segment=lambda name: quote(name, safe=""),
    )
    environment.globals.update(
        conditions=list(Shown),
        stacked=stacked,
        alone=alone,
        address=address,
        ago=wording.ago,
        heads=_HEADS,
    )
    return environment


_HEADS: Final = (
    (Sort.NAME, "Topic partition", ""),
    (Sort.CONDITION, "Condition", ""),
    (Sort.BYTES, "Bytes by level", ""),
    (Sort.SEGMENTS, "Segments", "number"),
    (Sort.RECORDS, "Records", "number"),
    (Sort.DIRTY_RATIO, "Dirty", "number"),
    (Sort.LAG, "Lag", "number"),
    (Sort.QUARANTINED, "Quarantined", "number"),
)
"""Columns of the topic partitions: sort key, heading, CSS class."""


def address(query: Query, **changes: Any) -> str:
    """The address of the same page with ``changes`` to the query, relative to the page itself."""
    said = {
        "text": query.text,
        "shown": query.shown.value,
        "sort": query.sort.value,
        "descending": query.descending,
        "page": query.page,
    } | changes
    return "?" + urlencode(said)
