"""What becomes of the newest record of a key, as SQL over a row of `groups` (C7 to C10)."""

CLEAN = "(clean_below IS NULL OR in_max < clean_below)"
"""Nothing outside the inputs can hold an older offset (C7)."""

ALONE = "(in_min = in_max)"
"""The newest record supersedes nothing: it must outlive, in a commit, what it supersedes (C2)."""

_MAY_GO = f"(in_horizon IS NOT NULL AND in_horizon <= now AND {CLEAN} AND in_max != log_end)"
_REMOVABLE = f"(in_tombstone AND {_MAY_GO} AND {ALONE})"
_MARKER_REMOVABLE = f"(ended AND {_MAY_GO})"
_STAMPED = f"CASE WHEN in_horizon IS NOT NULL AND {ALONE} THEN in_horizon WHEN {CLEAN} THEN stamp END"

HORIZON = f"CASE WHEN CASE WHEN role = 'control' THEN ended ELSE in_tombstone END THEN {_STAMPED} END"
"""The delete horizon, epoch microseconds, that the record kept of a key, or a control record, must carry: that of a
tombstone or marker that stays (C8 to C10)."""

KEYED, COPIED, CONTROL, ABORTED = (f"role = '{role}'" for role in ("key", "copy", "control", "aborted"))
KNOWN = f"({KEYED} AND n_in > 0)"
"""Records of the key were read."""

KEPT = f"({KNOWN} AND out_max IS NOT DISTINCT FROM in_max)"
"""The newest record of the key is in the topic."""

MAY = f"({KNOWN} AND {_REMOVABLE})"
"""The newest record read of a key is a tombstone that this commit may remove: it was stamped by an earlier commit and
its horizon has passed, it is clean again now and not the log end (C9)."""

MARKER = f"({CONTROL} AND n_in > 0)"
MARKER_MAY = f"({MARKER} AND {_MARKER_REMOVABLE})"
"""A control record that was read is a marker that this commit may remove: by the rules of a tombstone, and only while
nothing of its transaction is read (C10)."""

ADDED = "greatest(n_out - least(n_in, 1), 0)"
"""How many more copies were written than the one that is to be."""
