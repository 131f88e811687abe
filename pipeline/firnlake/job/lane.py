"""The lanes, which are the kinds of work, and groups of lanes with something in common."""

from enum import StrEnum


class Lane(StrEnum):
    """The kinds of work, in the order in which a run does them."""

    RETAIN = "retain"
    ERASE = "erase"
    CONVERT = "convert"
    MERGE = "merge"
    CLEAN = "clean"
    TIER = "tier"
    FULL = "full"


ANY_POLICY = frozenset({Lane.RETAIN, Lane.ERASE, Lane.CONVERT, Lane.MERGE})
"""The lanes that never remove a record because of a newer record; all other lanes need a compacted topic (C19)."""
LEVELING = frozenset({Lane.MERGE, Lane.CLEAN, Lane.TIER, Lane.FULL})
"""The lanes that rewrite their inputs as segments of one level."""
BEFORE_FULL = LEVELING - {Lane.FULL}
"""The lanes of ``LEVELING`` whose segments lane `full` may take in the same run."""
COPYING = frozenset({Lane.ERASE, Lane.MERGE})
"""The lanes that copy records, each as often as its file is listed, instead of cleaning them."""
SEEING_TRANSACTIONS = frozenset({Lane.ERASE, Lane.CLEAN, Lane.TIER, Lane.FULL})
"""The lanes that treat control records and the records of transactions specially (C10)."""
WHOLE_PARTITION = frozenset({Lane.ERASE, Lane.CONVERT})
"""The lanes that work on whole topic partitions, whose inputs may all stay in place."""
UNBLOCKED = frozenset({Lane.RETAIN, Lane.CONVERT})
"""The lanes that also work on a blocked topic partition (C20), because they drop or keep whole segments."""
