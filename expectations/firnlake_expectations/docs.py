"""Firn's own pages for people: a front page, and a page per verdict."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firnlake_expectations.claim import Claim, Verdict
from firnlake_expectations.templates import CERTIFICATES, PLANS, VERDICTS, environment, write_page
from firnlake_expectations.wording import log_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


NAME = re.compile(r"\w[\w.-]{0,199}", re.ASCII)
"""Pattern of a verdict's name, which becomes the name of a page."""
NEWEST = 2_000
"""Maximum number of verdicts on the front page; the pages of older ones stay."""


@dataclass(frozen=True, slots=True)
class ReportPage:
    """One stored verdict as the pages show it."""

    claim: Claim
    verdict: Verdict
    validated: str

    @property
    def log(self) -> str:
        return log_name(self.claim.topic, self.claim.partition)

    @property
    def page(self) -> str:
        return f"{PLANS}/{self.verdict.run_name}.html"


@dataclass(frozen=True, slots=True)
class CertificatePage:
    """A certificate of erased keys; `page` is the path of its page under the reports folder."""

    table: str
    request: str
    page: str


def build_pages(reports: Path) -> Path:
    """Build the pages for all verdicts stored under `reports`. Returns the path of the front page, `index.html`, which
    also lists the certificates of erased keys.

    Verdicts never change, so existing pages are kept. Each page is written atomically; when several processes build at
    once, the last front page wins.
    """
    reports.mkdir(parents=True, exist_ok=True)
    stored = sorted(_stored(reports / VERDICTS), key=lambda report: report.verdict.run_name, reverse=True)
    pages = environment()
    for report in stored:
        target = reports / report.page
        if not target.exists():
            write_page(
                target,
                pages.get_template("plan.html.j2").render(
                    claim=report.claim, verdict=report.verdict, log=report.log, validated=report.validated
                ),
            )
    front = pages.get_template("index.html.j2").render(
        reports=stored[:NEWEST],
        total=len(stored),
        passed=sum(report.verdict.passed for report in stored),
        certificates=list(_certificates(reports)),
    )
    return write_page(reports / "index.html", front)


def _stored(verdicts: Path) -> Iterator[ReportPage]:
    for file in verdicts.glob("*.json"):
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            report = ReportPage(
                claim=Claim.from_dict(document["claim"]),
                verdict=Verdict.from_dict(document["verdict"]),
                validated=f"{document['validated'][:19].replace('T', ' ')} UTC",
            )
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            continue  # deleted, damaged, or not Firn's: the other pages are built anyway
        if NAME.fullmatch(report.verdict.run_name):
            yield report


def _certificates(reports: Path) -> Iterator[CertificatePage]:
    for page in sorted((reports / CERTIFICATES).glob("*/request-*.html")):
        yield CertificatePage(
            page.parent.name, page.stem.removeprefix("request-"), page.relative_to(reports).as_posix()
        )
