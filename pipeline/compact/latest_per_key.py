"""Find the newest record of every key, and records that supersede an older one (C2, C9): pure numpy, no loop.

Keys come as codes that are equal when the keys are; the caller compares keys exactly (C6).
"""

import numpy as np
from numpy.typing import NDArray

from pipeline.lake.keys import NO_KEY
from pipeline.lake.numpy_types import Flags, Longs


def latest_per_key(codes: Longs, offsets: Longs, removed_before: Flags | None = None) -> tuple[Flags, Flags]:
    """Two flags per record: it is the newest of its key; an older record of its key is present.

    ``codes`` are dense: memory grows with the largest. ``removed_before`` marks tombstones that an earlier cleaning
    removed (C9): such a tombstone is the newest of its key only if the key has present records and all of them are
    older; as an older record it does not count. Present records of a key have different offsets. Records that do not
    take part (without a key, of control, of an aborted transaction) have the code NO_KEY, and neither flag.
    """
    order = _by_offset(codes, offsets, removed_before)
    keys = codes if order is None else codes[order]
    removed = removed_before if order is None or removed_before is None else removed_before[order]
    latest, later = _in_order(keys, removed)
    if order is None:
        return latest, later
    newest, has_older = np.zeros((2, len(codes)), dtype=np.bool_)
    newest[order], has_older[order] = latest, later
    return newest, has_older


def _by_offset(codes: Longs, offsets: Longs, removed_before: Flags | None) -> NDArray[np.intp] | None:
    """The participating records, by offset; None when all take part and are already in that order.

    A removed tombstone comes before the present record of its offset, which wins.
    """
    if len(codes) == 0 or (codes.min() > NO_KEY and bool((offsets[1:] > offsets[:-1]).all())):
        return None
    taking_part = codes != NO_KEY
    if removed_before is None:
        part = np.flatnonzero(taking_part)
    else:
        part = np.concatenate(
            (np.flatnonzero(taking_part & removed_before), np.flatnonzero(taking_part & ~removed_before))
        )
    of_part = offsets[part]
    if bool((of_part[1:] > of_part[:-1]).all()):
        return part
    # Stable, and fast on concatenated sorted segments.
    return part[np.argsort(of_part, kind="stable")]


def _in_order(codes: Longs, removed: Flags | None) -> tuple[Flags, Flags]:
    """Both flags for records that all have a key and are in offset order."""
    places = np.arange(len(codes))
    size = int(codes.max()) + 1 if len(codes) else 0
    # Of several values for one place, an assignment keeps the last (NumPy, "Indexing on ndarrays").
    last, first = np.empty(size, dtype=np.intp), np.empty(size, dtype=np.intp)
    last[codes] = places
    newest = last[codes] == places
    if removed is None:
        first[codes[::-1]] = places[::-1]
        return newest, first[codes] < places
    first[codes] = len(codes)
    present = np.flatnonzero(~removed)[::-1]
    first[codes[present]] = present
    has_older = first[codes] < places
    # A removed tombstone must be newer than a present record, and thus than all of them.
    return newest & (~removed | has_older), has_older
