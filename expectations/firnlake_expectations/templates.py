"""Templates of the pages that people read, how pages and documents are written, and the page of a certificate."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from firnlake_expectations.wording import count, fates, moment, printable, shown, size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


T = TypeVar("T")

PAGES = Path(__file__).parent / "pages"

CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Content policy: no page loads anything or runs a script, whatever data it shows."""


def environment() -> Environment:
    """The templates, with filters for numbers, sizes and times; all text is escaped."""
    templates = Environment(
        loader=FileSystemLoader(PAGES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals["policy"] = CONTENT_POLICY
    templates.filters.update(
        moment=moment,
        second=lambda at: moment(at).partition(".")[0],
        size=size,
        count=count,
        number=lambda number: f"{number:,}",
        clauses=clauses,
        also_gone=lambda claim: fates(claim.gone, but=("superseded", "tombstones_removed", "quarantined")),
        count_of=lambda things, noun: count(len(things), noun),
    )
    return templates


def clauses(text: str) -> Markup:
    """A message with each clause on a line of its own, and the commands in backticks as code."""
    escaped = str(Markup("<br>").join(map(printable, text.split("; "))))
    return Markup(
        re.sub("`([^`]+)`|(?<=: )(firn [^<`]+)(?=<br>|$)", lambda one: f"<code>{one[1] or one[2]}</code>", escaped)
    )


def write_page(target: Path, page: str) -> Path:
    """Write the page under a temporary name first, so that no reader sees half of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{uuid.uuid4().hex}")
    unfinished.write_text(page, encoding="utf-8")
    unfinished.replace(target)
    return target


def new_name(at_ms: int, plan_id: str) -> str:
    """A new name for a document about a plan; it begins with the time, epoch milliseconds, and sorts by it."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{at:%Y%m%dT%H%M%S.%fZ}-{re.sub(r'[^A-Za-z0-9_-]', '_', plan_id)[:100]}-{uuid.uuid4().hex[:8]}"


def write_document(target: Path, document: object) -> Path:
    """Store a dataclass as JSON; raises OSError if that is not possible."""
    return write_page(target, to_json(document).decode())


def read_document(path: Path, kind: type[T]) -> T | None:
    """The dataclass of this `kind` that `write_document` stored at `path`; None if it is gone, damaged, or not
    Firn's."""
    try:
        found: T = _adapter(kind).validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    return found


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


RESULTS = "results"
"""Folder of Great Expectations' results below the reports: suite, run name, time and batch."""
VERDICTS = "verdicts"
"""Folder of the verdicts below the reports. Their names begin with the time, so they sort by it."""
PLANS = "plans"
"""Folder of the verdicts' pages below the reports."""
REFUSALS = "refusals"
"""Folder of the refusals below the reports. Their names begin with the time, so they sort by it."""
TABLES = "tables"
"""Folder of the tables' pages below the reports."""
CERTIFICATES = "erasures"
"""Folder of the certificates below the reports, with one folder per table."""
POSITIONS = 100
"""Maximum number of keys' positions that the page lists; the document has all."""


def certificate_page(content: Mapping[str, Any], document: str) -> str:
    """The page for the `content` of a certificate; `document` is the name of the JSON file next to the page."""
    return environment().get_template("certificate.html.j2").render(one=content, most=POSITIONS, document=document)
