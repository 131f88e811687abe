"""Tells which snapshots Firn made. Anybody may write ``firn.…`` into a summary, or hand on the properties of one.

A snapshot's id is drawn while its commit is prepared, so no other commit has named it by accident. Somebody may still
forge a whole summary on purpose, so figures count only if they can be read.
"""

import re
from collections.abc import Mapping
from typing import Final

from pyiceberg.table.snapshots import Snapshot

SNAPSHOT_ID: Final = "firn.snapshot-id"
"""Property in the summary of each snapshot that Firn makes: the id of this very snapshot."""


def properties_of(snapshot: Snapshot) -> Mapping[str, str]:
    """Properties in the summary of ``snapshot``, by whichever writer; empty if it has no summary."""
    # Don't test the truth value: that computes the length of the summary, which is costly.
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def firn_properties(snapshot: Snapshot) -> Mapping[str, str]:
    """Properties in the summary of ``snapshot``, including Iceberg's own; empty if Firn did not make the snapshot."""
    properties = properties_of(snapshot)
    return properties if properties.get(SNAPSHOT_ID) == str(snapshot.snapshot_id) else {}


def number_of(text: str | None) -> int | None:
    """The whole number, 0 or more, that a property of a summary says; None if it says none of up to 18 digits."""
    return int(text) if text and re.fullmatch("[0-9]{1,18}", text) else None
