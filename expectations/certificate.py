"""The page of a certificate of erasure (`pipeline.prove.certificate` says what its document holds)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from expectations.templates import environment

if TYPE_CHECKING:
    from collections.abc import Mapping

CERTIFICATES = "erasures"
"""Folder of the certificates below the reports, with one folder per table."""
DIGESTS = 100
"""Maximum number of keys' digests and of destroyed files that the page lists; the document has all."""


def certificate_page(content: Mapping[str, Any], document: str) -> str:
    """The page for the `content` of a certificate; `document` is the name of the JSON file beside the page."""
    return environment().get_template("certificate.html.j2").render(one=content, most=DIGESTS, document=document)
