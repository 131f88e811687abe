"""What a run can be asked for: its lanes, and the form of a manual run with the scope that it defines."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Param

if TYPE_CHECKING:
    from firnlake.plan.read_states import Scope


LANES: Final = {
    "retain": """Drops whole segments past their retention, oldest first, by a change of metadata only. Applies if
`firn.cleanup.policy` is `delete` or `compact,delete`.

`firn.retention.ms`, `firn.retention.bytes`, `firn.active.segments`""",
    "erase": """Removes the records of keys that are to be erased (`firn erase`) from every segment that holds one. All
other records and segments stay as they are.

`firn erase TABLE --status` shows what blocks a request.""",
    "convert": """Turns equality deletes into position deletes, which cost readers less, and removes the equality delete
files. Rewrites no segment; readers see the same records.

`firn.convert.equality.deletes`, `firn.position.deletes.max`""",
    "merge": """Merges landed segments (L0) into fewer, larger ones (L1). No record is lost or changed.

`firn.merge.segments`, `firn.segment.bytes`""",
    "clean": """Cleans L1 segments into one L2 run that holds the newest record of each key.

`firn.clean.segments`, `firn.min.compaction.lag.ms`""",
    "tier": """Combines L2 runs of similar size into one that holds the newest record of each key.

`firn.tier.runs`""",
    "full": """Cleans head and tail together: one record per key remains. Tombstones past their delete horizon are
removed if no older record remains elsewhere. Tail segments that lose no record stay in place.

`firn.min.cleanable.dirty.ratio`, `firn.max.compaction.lag.ms`, `firn.full.interval.ms`, `firn.delete.retention.ms`,
`firn.tombstone.fraction`""",
}
"""The lanes in the order of a run, and what Airflow shows about each, in Markdown."""

RETAIN: Final = next(iter(LANES))
"""The lane that reads no records."""

ALL = "all"

_RECORDS, _THRESHOLDS = "Which records", "Thresholds"
"""Sections of the form that are collapsed at first."""


def params() -> dict[str, Param]:
    """The params of a table's DAG. Scheduled runs use the defaults, which mean all due work."""
    return {
        "lane": Param(ALL, type="string", enum=[ALL, *LANES], description="The lane to run, or all in order."),
        "force": _switch("Run even if no threshold is crossed. Limits such as min.compaction.lag.ms still apply."),
        "dry_run": _switch("Only log the plans; change nothing."),
        "ask": _switch("Ask before publishing: the run shows the figures and waits for approval."),
        "topics": _names("Only these topics, one per line. Empty: all."),
        "partitions": _names("Only these topic partitions, such as orders-3, one per line. Empty: all."),
        "properties": Param(
            {},
            type="object",
            additionalProperties={"type": ["string", "number", "boolean"]},
            section=_THRESHOLDS,
            description="Thresholds and budgets that override the table's, for example "
            '{"firn.merge.segments": "4"}. They never change which records may be removed. Not for lane retain.',
        ),
    }


def scope_of(asked: Mapping[str, Any]) -> "Scope":
    """The scope to which the params ``asked`` restrict a run. Raises RefusedError when they are invalid."""
    from firnlake.plan.read_states import Scope
    from firnlake.table.segment import TopicPartition

    return Scope(
        topics=tuple(asked["topics"] or ()),
        partitions=tuple(TopicPartition.parse(name) for name in asked["partitions"] or ()),
        properties={name: _text(value) for name, value in asked["properties"].items()},
    )


def _names(description: str) -> Param:
    return Param([], type=["array", "null"], items={"type": "string"}, section=_RECORDS, description=description)


def _switch(description: str) -> Param:
    return Param(False, type="boolean", description=description)


def _text(value: object) -> str:
    """``value`` in the text form of table properties."""
    return str(value).lower() if isinstance(value, bool) else str(value)
