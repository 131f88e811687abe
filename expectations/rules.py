"""The rules of the contract, each as a weight on a group of records: 0 where it is kept, else how many break it.

They are SQL over the columns of the groups (see `groups`) and the figures of the claim beside them (see `figures`);
how a broken rule is said is in `sayings`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from expectations.claim import Lane

CLEAN = "(clean_below IS NULL OR in_max < clean_below)"
"""Nothing outside the inputs can hold an older offset (C7)."""

ALONE = "(in_min = in_max)"
"""The newest record supersedes nothing: it must outlive, in a commit, what it supersedes (C2)."""

_MAY_GO = f"(in_horizon IS NOT NULL AND in_horizon <= now AND {CLEAN} AND in_max != log_end)"

REMOVABLE = f"(in_tombstone AND {_MAY_GO} AND {ALONE})"
"""Whether the newest record read of a key is a tombstone that this commit may remove: it was stamped by an earlier
commit and its horizon has passed, it is clean again now and not the log end (C9)."""

MARKER_REMOVABLE = f"(ended AND {_MAY_GO})"
"""Whether a control record that was read is a marker that this commit may remove: by the rules of a tombstone, and only
while nothing of its transaction is read (C10)."""

STAMPED = f"CASE WHEN in_horizon IS NOT NULL AND {ALONE} THEN in_horizon WHEN {CLEAN} THEN stamp END"
"""The delete horizon, epoch microseconds, that a tombstone or marker must carry if it stays (C8 to C10)."""

EXPECTED_HORIZON = f"CASE WHEN if(role = 'control', ended, in_tombstone) THEN {STAMPED} END"
"""The delete horizon that the record kept of a key, or a control record, must carry."""

_KEYED, _COPIED, _CONTROL, _ABORTED = (f"role = '{role}'" for role in ("key", "copy", "control", "aborted"))
_KNOWN = f"({_KEYED} AND n_in > 0)"
_KEPT = f"({_KNOWN} AND out_max <=> in_max)"
_MAY = f"({_KNOWN} AND {REMOVABLE})"
_MARKER = f"({_CONTROL} AND n_in > 0)"
_MARKER_MAY = f"({_MARKER} AND {MARKER_REMOVABLE})"
_ADDED = "greatest(n_out - least(n_in, 1L), 0L)"

_MERGED = {
    "lost_copy": "greatest(n_in - n_out, 0L)",
    "added_copy": "greatest(n_out - n_in, 0L)",
    "level": "n_level",
    "foreign": "n_foreign",
}
"""The rules of a copy (C13): as many of each record come out as went in, all at the new level."""

_CLEANED = {
    "repeated_key": f"{_KEYED} AND n_out > 1",
    "lost": f"{_KNOWN} AND NOT in_tombstone AND NOT {_KEPT}",
    "stale": f"{_KNOWN} AND out_min < in_max AND out_min >= in_min",
    "tombstone_lost": f"{_KNOWN} AND in_tombstone AND NOT {_MAY} AND NOT {_KEPT}",
    "tombstone_left": f"{_MAY} AND {_KEPT}",
    "horizon": (
        f"(({_KEPT} AND NOT {_MAY}) OR ({_MARKER} AND n_out > 0 AND NOT {_MARKER_MAY})) "
        f"AND NOT out_horizon <=> ({EXPECTED_HORIZON})"
    ),
    "log_end": "end_in > 0 AND end_out = 0",
    "past_end": "in_max > log_end",
    "changed": f"{_KEPT} AND in_fingerprint != out_fingerprint",
    # What is removed is kept beside the topic as it was, and nothing else goes there.
    "unburied": f"{_MAY} AND NOT {_KEPT} AND NOT (n_buried = 1 AND buried_fingerprint = in_fingerprint)",
    "buried_alive": f"if(coalesce({_MAY} AND NOT {_KEPT}, false), 0L, n_buried)",
    "invented": f"{_KEYED} AND n_out > 0 AND (n_in = 0 OR out_max > in_max OR out_min < in_min)",
    "null_lost": f"if({_COPIED}, greatest(least(n_in, 1L) - n_out, 0L), 0L)",
    "null_added": f"if({_COPIED}, {_ADDED}, 0L)",
    "null_visible": f"if({_COPIED}, n_level, 0L)",
    "aborted_left": f"if({_ABORTED}, n_out, 0L)",
    "undecided": "n_undecided",
    "untold": "if(told, 0L, n_transaction)",
    "marker_lost": f"{_MARKER} AND n_out = 0 AND NOT {_MARKER_MAY}",
    "marker_left": f"{_MARKER_MAY} AND n_out > 0",
    "control_added": f"if({_CONTROL}, {_ADDED}, 0L)",
    "level": f"if({_KEYED} OR {_CONTROL}, n_level, 0L)",
    "foreign": "n_foreign",
}
"""The rules of a cleaning (C1 to C10), for the keys, the records that have none and the bitmap words."""


def weights(lane: Lane) -> dict[str, str]:
    """The weight of every rule of `lane` by the rule's name, as SQL, never NULL."""
    rules = _MERGED if lane == "merge" else _CLEANED
    return {name: f"coalesce(cast(({weight}) AS bigint), 0L)" for name, weight in rules.items()}
