"""The lanes in the order of a run, and their documentation in Markdown, which Airflow shows."""

from typing import Final

DAG = """
### {table}

Kafka-grade log compaction, lane by lane: **retain** → **erase** → **convert** → **merge** → **clean** → **tier** →
**full**. Each lane plans the work that is due by the table's properties and runs it, with or without Spark. Great
Expectations validates every result. Then one atomic commit publishes the result, while writers keep appending. If
nothing is due, Spark does not start.

- A run starts when a threshold is crossed, on schedule (`{schedule}`, UTC), or manually (▶ opens a form).
- The clock of a run is its logical date, or the time at which the run was due; in a backfill, each run has its own.
- A topic partition that fails does not delay the others. The task `verdict` then fails the run and says what failed.
  It also tells, once and then once a day, which topic partitions wait for a person.
- `firn status {table}`, or the page *Firn* in the menu, shows what is due and what is blocked.
"""

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

RETAIN = next(iter(LANES))
