"""The fate of a key's newest record, as SQL over a row of `groups` (C7 to C10)."""

CLEAN = "(clean_below IS NULL OR in_max < clean_below)"
"""True when no segment outside the inputs can hold an older offset (C7)."""

ALONE = "(in_min = in_max)"
"""True when the newest record supersedes nothing: it must outlive, in a commit, the records it supersedes (C2)."""

_MAY_GO = f"(in_horizon IS NOT NULL AND in_horizon <= now AND {CLEAN} AND in_max < kept_from)"
_REMOVABLE = f"(in_tombstone AND {_MAY_GO} AND {ALONE})"
_MARKER_REMOVABLE = f"(ended AND {_MAY_GO})"
_STAMPED = f"CASE WHEN in_horizon IS NOT NULL AND {ALONE} THEN in_horizon WHEN {CLEAN} THEN stamp END"

HORIZON = f"CASE WHEN CASE WHEN role = 'control' THEN ended ELSE in_tombstone END THEN {_STAMPED} END"
"""Delete horizon, epoch microseconds, that the record kept for a key, or a control record, must carry: that of a
tombstone or marker that stays (C8 to C10)."""

KEYED, COPIED, CONTROL, ABORTED = (f"role = '{role}'" for role in ("key", "copy", "control", "aborted"))
KNOWN = f"({KEYED} AND n_in > 0)"
"""True when records of the key were read."""

KEPT = f"({KNOWN} AND out_max IS NOT DISTINCT FROM in_max)"
"""True when the newest record of the key is in the topic."""

MAY = f"({KNOWN} AND {_REMOVABLE})"
"""True when the newest record read of a key is a tombstone that this commit may remove: an earlier commit stamped it,
its horizon has passed, it is clean again now, and it is not the log end (C9)."""

MARKER = f"({CONTROL} AND n_in > 0)"
MARKER_MAY = f"({MARKER} AND {_MARKER_REMOVABLE})"
"""True when a control record is a marker that this commit may remove: by the rules of a tombstone, and only if no
record of its transaction is read (C10)."""

ADDED = "greatest(n_out - least(n_in, 1), 0)"
"""Number of copies written in excess of the expected one."""
