"""Writes certificates beside the data-quality reports, each as JSON and as a page, which the front page lists."""

from collections.abc import Iterable
from pathlib import Path

from expectations import build_data_docs
from expectations.certificate import CERTIFICATES, certificate_page
from expectations.templates import write_page
from pipeline.erase.requests import Certificate
from pipeline.lake import Lake
from pipeline.prove.certificate import content_of


def export(lake: Lake, identifier: str, issued: Iterable[Certificate]) -> dict[int, Path]:
    """Write ``issued`` below the reports of Firn's home, and the front page anew; returns the pages by request.

    The table keeps the documents as well.
    """
    pages = {one.request: _write(lake, identifier, one) for one in issued}
    if pages:
        build_data_docs(lake.reports_folder)
    return pages


def _write(lake: Lake, identifier: str, issued: Certificate) -> Path:
    folder = lake.reports_folder / CERTIFICATES / identifier
    name = f"request-{issued.request}.json"
    write_page(folder / name, issued.document)
    return write_page((folder / name).with_suffix(".html"), certificate_page(content_of(issued), name))
