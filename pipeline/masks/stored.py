"""The file with the memory of lane `mask`: the statistics file of the head of branch `firn_masks`."""

import logging

import pyarrow as pa
from pyiceberg.table import Table

from pipeline.errors import RefusedError
from pipeline.history.ancestors import ancestors
from pipeline.lake.branch_file import file_of, location_on
from pipeline.lake.branches import MASKS, on_branch
from pipeline.lake.puffin import Blob, read_puffin
from pipeline.lake.typed_rows import rows_as_bytes, rows_of
from pipeline.masks.memory import Compared, Hidden, Masks

log = logging.getLogger(__name__)

COMPARED = "firn-masks-compared-v1"
HIDDEN = "firn-masks-hidden-v1"
_ANEW = "everything is compared anew"


def blobs_of(masks: Masks) -> list[Blob]:
    """The blobs that hold ``masks``."""
    return [
        Blob(COMPARED, rows_as_bytes(Compared, masks.compared)),
        Blob(HIDDEN, rows_as_bytes(Hidden, masks.hidden)),
    ]


def read_masks(table: Table) -> Masks:
    """The memory of lane `mask` about ``table``; empty before the first mask, or when its file is lost or unreadable.

    Topic partitions whose last mask is no longer in main's history (a rollback, or the snapshot has expired) are not
    compared: what it hid may be visible again. UnavailableError when the store does not answer.
    """
    try:
        location = location_on(table, MASKS, _ANEW)
        masks = Masks() if location is None else _read_file(table, location)
    except RefusedError as error:
        log.warning("%s", error)
        return Masks()
    history = {snapshot.snapshot_id for snapshot in ancestors(table)}
    return Masks(tuple(one for one in masks.compared if one.snapshot_id in history), masks.hidden)


def masks_at(table: Table, number: int) -> Masks:
    """The memory of lane `mask` when the newest snapshot of ``table`` had the sequence number ``number``.

    Raises RefusedError when that is no longer known.
    """
    until = (one for one in ancestors(on_branch(table, MASKS)) if (one.sequence_number or 0) <= number)
    head = next(until, None)
    location = file_of(table, head.snapshot_id) if head else None
    if location is None:
        raise RefusedError(
            f"table {'.'.join(table.name())}: what lane mask had compared at sequence number {number} is no longer "
            f"known; allowed: a commit whose snapshot on branch {MASKS} is kept"
        )
    return _read_file(table, location)


def _read_file(table: Table, location: str) -> Masks:
    subject = f"table {'.'.join(table.name())}: what lane mask has compared"
    blobs = {one.type: one for one in read_puffin(table, location, subject)}
    try:
        return Masks(rows_of(Compared, blobs[COMPARED]), rows_of(Hidden, blobs[HIDDEN]))
    except (KeyError, ValueError, TypeError, pa.ArrowException) as error:
        raise RefusedError(f"{subject} in {location} is not readable: {error}; {_ANEW}") from error
