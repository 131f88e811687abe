"""Templates of the pages that people read, and how a page is written."""

from __future__ import annotations

import uuid
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from expectations.wording import count, moment, shown, size

PAGES = Path(__file__).parent / "pages"

CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Content policy: no page loads anything or runs a script, regardless of the data in it."""


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
        size=size,
        count=count,
        number=lambda number: f"{number:,}",
        count_of=lambda things, noun: count(len(things), noun),
    )
    return templates


def write_page(target: Path, page: str) -> Path:
    """Write the page under another name first, so that no reader sees half of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    unfinished.write_text(page, encoding="utf-8")
    unfinished.replace(target)
    return target
