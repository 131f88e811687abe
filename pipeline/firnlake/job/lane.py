"""The lanes: the kinds of work, in the order in which a run does them, and what some of them have in common."""

from enum import StrEnum


class Lane(StrEnum):
    """One kind of work, in the order in which a run does them."""

    RETAIN = "retain"
    ERASE = "erase"
    HIDE = "hide"
    CONVERT = "convert"
    MERGE = "merge"
    CLEAN = "clean"
    TIER = "tier"
    FULL = "full"


ANY_POLICY = frozenset({Lane.RETAIN, Lane.ERASE, Lane.CONVERT, Lane.MERGE})
"""The lanes that lose no record to a newer one: the others are for topics that are compacted (C19)."""
POSITION_DELETING = frozenset({Lane.HIDE, Lane.CONVERT})
"""The lanes whose result is position delete files: all inputs stay in the table, and no record is written."""
LEVELING = frozenset({Lane.MERGE, Lane.CLEAN, Lane.TIER, Lane.FULL})
"""The lanes that write what they take as segments of one level."""
UNBLOCKED = frozenset({Lane.RETAIN, Lane.CONVERT})
"""The lanes that work whatever blocks a topic partition (C20): segments are dropped whole, or stay as they are."""
