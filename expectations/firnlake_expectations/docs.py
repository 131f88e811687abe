"""HTML pages for people: a front page, a page per validation, and Great Expectations' own Data Docs."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from firnlake_expectations.claim import Claim, Verdict
from firnlake_expectations.store import RESULTS, context_for
from firnlake_expectations.templates import CERTIFICATES, environment, write_page
from firnlake_expectations.wording import log_name

if TYPE_CHECKING:
    from collections.abc import Iterator


SITE = "data_docs"
PLANS = "plans"
NAME = re.compile(r"\w[\w.-]{0,199}", re.ASCII)
"""Pattern of a run's name, which becomes the name of a page."""
NEWEST = 2_000
"""Maximum number of validations on the front page; the pages of older ones stay."""


@dataclass(frozen=True, slots=True)
class ReportPage:
    """One stored validation as the pages show it; `result` is the path of its file under the results folder."""

    claim: Claim
    verdict: Verdict
    validated: str
    result: Path

    @property
    def log(self) -> str:
        return log_name(self.claim.topic, self.claim.partition)

    @property
    def page(self) -> str:
        return f"{PLANS}/{self.verdict.run_name}.html"

    @property
    def gx_page(self) -> str:
        """Path of Great Expectations' page for the same result, under the reports folder."""
        return f"{SITE}/validations/{self.result.with_suffix('.html').as_posix()}"


@dataclass(frozen=True, slots=True)
class CertificatePage:
    """A certificate of erased keys; `page` is the path of its page under the reports folder."""

    table: str
    request: str
    page: str


def build_data_docs(reports: Path) -> Path:
    """Build the pages for all results stored under `reports`. Returns the path of the front page, `index.html`, which
    also lists the certificates of erased keys.

    Results never change, so existing pages are kept. Each page is written atomically; when several processes build at
    once, the last front page wins.
    """
    reports.mkdir(parents=True, exist_ok=True)
    # A result's folder is named after the time of its validation, to the microsecond.
    stored = sorted(_stored(reports / RESULTS), key=lambda report: report.result.parent.name, reverse=True)
    _build_great_expectations_pages(reports, stored)
    pages = environment()
    for report in stored:
        target = reports / report.page
        if not target.exists():
            write_page(
                target,
                pages.get_template("plan.html.j2").render(
                    claim=report.claim,
                    verdict=report.verdict,
                    log=report.log,
                    validated=report.validated,
                    gx_page="../" + quote(report.gx_page),
                ),
            )
    front = pages.get_template("index.html.j2").render(
        reports=stored[:NEWEST],
        total=len(stored),
        passed=sum(report.verdict.passed for report in stored),
        certificates=list(_certificates(reports)),
    )
    return write_page(reports / "index.html", front)


def _stored(results: Path) -> Iterator[ReportPage]:
    # Old results may be deleted during the walk, which makes Path.rglob fail.
    paths = (Path(folder, name) for folder, _, names in os.walk(results) for name in names)
    for file in (path for path in paths if path.suffix == ".json"):
        try:
            meta = json.loads(file.read_text(encoding="utf-8"))["meta"]
            report = ReportPage(
                claim=Claim.from_dict(meta["firn"]["claim"]),
                verdict=Verdict.from_dict(meta["firn"]["verdict"]),
                validated=f"{meta['validation_time'][:19].replace('T', ' ')} UTC",
                result=file.relative_to(results),
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


def _build_great_expectations_pages(reports: Path, stored: list[ReportPage]) -> None:
    missing = {r.verdict.run_name for r in stored if not (reports / r.gx_page).exists()}
    if not missing:
        return
    # Only here: the front page alone, of a new certificate for example, needs nothing of it.
    from great_expectations.data_context.types.resource_identifiers import ValidationResultIdentifier

    from firnlake_expectations import great_expectations  # noqa: F401  # registers the expectation that the stored results name

    result_page = {"module_name": "firnlake_expectations.great_expectations", "class_name": "OfflineResultPage"}
    site = {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": {
            "class_name": "TupleFilesystemStoreBackend",
            "base_directory": str((reports / SITE).resolve()),
        },
        "site_section_builders": {
            "validations": {"view": result_page},
            "expectations": "none",
            "profiling": "none",
        },
    }
    context = context_for(reports, {SITE: site})
    keys = context.validation_results_store.list_keys()
    wanted = [key for key in keys if isinstance(key, ValidationResultIdentifier) and key.run_id.run_name in missing]
    # Its index needs a script from another host, so the front page replaces it.
    context.build_data_docs(resource_identifiers=wanted, build_index=False)
    # Fonts and logos that only its own style uses.
    shutil.rmtree(reports / SITE / "static", ignore_errors=True)
