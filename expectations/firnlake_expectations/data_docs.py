"""Great Expectations' Data Docs of all stored validation results and of the lanes' suites: a site that loads nothing
from other hosts.

Great Expectations renders the results; its templates for the frame of a page and for the list of results are replaced,
because they need scripts, styles and pictures from other hosts.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from great_expectations.render.view.view import DefaultJinjaIndexPageView, DefaultJinjaPageView
from jinja2 import ChoiceLoader, DictLoader

from firnlake_expectations.checkpoint import configured, context_of
from firnlake_expectations.promises.promise import EVERY_LANE
from firnlake_expectations.suites import suite_of
from firnlake_expectations.templates import CONTENT_POLICY, PAGES

if TYPE_CHECKING:
    from pathlib import Path


def build_data_docs(reports: Path, target: Path) -> Path:
    """Build the Data Docs of the results stored under `reports` in the folder `target`; returns the front page."""
    views = {"module_name": __name__}
    site = {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": configured(target)},
        "site_index_builder": {
            "class_name": "DefaultSiteIndexBuilder",
            "view": views | {"class_name": "OfflineIndexPage"},
        },
        "site_section_builders": {
            "validations": {"view": views | {"class_name": "OfflinePage"}},
            "expectations": {"view": views | {"class_name": "OfflinePage"}},
            "profiling": "none",
        },
    }
    context = context_of(reports, {"Firn": site})
    for lane in (*EVERY_LANE, "retain"):
        context.suites.add(suite_of(lane))
    context.build_data_docs()
    # Fonts and logos that only Great Expectations' own templates use.
    shutil.rmtree(target / "static", ignore_errors=True)
    return target / "index.html"


def _offline(view: Any) -> None:
    """Let `view` find Firn's templates before those of Great Expectations."""
    frame, table = (
        (PAGES / name).read_text(encoding="utf-8") for name in ("data_docs.html.j2", "data_docs_table.html.j2")
    )
    style = "".join((PAGES / name).read_text(encoding="utf-8") for name in ("style.css", "data_docs.css"))
    own = {"page.j2": frame, "index_page.j2": frame, "bootstrap_table.j2": table, "firn.css": style}
    view.env.loader = ChoiceLoader([DictLoader(own), view.env.loader])
    view.env.globals["policy"] = CONTENT_POLICY


class OfflinePage(DefaultJinjaPageView):
    """The page of one validation result, or of a lane's suite."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        _offline(self)


class OfflineIndexPage(DefaultJinjaIndexPageView):
    """The list of all validation results."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        _offline(self)
