"""Writes a certificate beside the data-quality reports, as JSON and as a page."""

from pathlib import Path

from expectations.certificate import CERTIFICATES, certificate_page
from expectations.templates import write_page
from pipeline.erase.requests import Certificate
from pipeline.lake import Lake
from pipeline.prove.certificate import content_of


def export(lake: Lake, identifier: str, issued: Certificate) -> Path:
    """Write ``issued`` below the reports of Firn's home; returns the page. The table keeps the document as well."""
    folder = lake.reports_folder / CERTIFICATES / identifier
    name = f"request-{issued.request}.json"
    write_page(folder / name, issued.document)
    return write_page((folder / name).with_suffix(".html"), certificate_page(content_of(issued), name))
