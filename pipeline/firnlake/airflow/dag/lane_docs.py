"""Documentation of the lanes in Markdown, which Airflow shows beside the tasks."""

DAG = """
### {table}

Kafka-grade log compaction, lane by lane: **retain** → **erase** → **hide** → **convert** → **merge** → **clean** →
**tier** → **full**. Each lane plans what is due by the table's own properties and compacts it, with or without Spark.
Great Expectations validates every result before one atomic commit publishes it, while writers keep appending. When
nothing is due, Spark does not start.

- A run starts when a threshold is crossed, on schedule (`{schedule}`, UTC), or manually (▶ opens a form).
- A run decides as of its logical date, or as of the time it was due. A backfill compacts as of each of its dates.
- A topic partition that fails does not hold up the others: the task `verdict` fails the run and names it.
- To see what is due and what is blocked: `firn status {table}`, or the page *Firn* in the menu.
"""

LANES = {
    "retain": """Drops whole segments past retention, oldest first, in metadata only. Applies when
`firn.cleanup.policy` is `delete` or `compact,delete`.

`firn.retention.ms`, `firn.retention.bytes`, `firn.active.segments`""",
    "erase": """Takes the records of keys that are to be erased (`firn erase`) out of every segment that holds one. All
other records and segments stay as they are.

`firn erase TABLE --status` tells what is in the way.""",
    "hide": """Hides superseded records by position deletes, so that readers see one record per key before a cleaning.
Nothing is rewritten. Off unless `firn.hide.max.lag.ms` is set.

`firn.hide.max.lag.ms`, `firn.hide.max.fraction`, `firn.hide.max.tail.bytes`, `firn.position.deletes.max`""",
    "convert": """Turns equality deletes into position deletes, which cost readers less, and lets the equality delete
files go. No segment is rewritten, and readers see the same.

`firn.convert.equality.deletes`, `firn.position.deletes.max`""",
    "merge": """Merges landed segments (L0) into fewer, larger ones (L1). No record is lost or changed.

`firn.merge.segments`, `firn.segment.bytes`, `firn.leave.to.full.fraction`""",
    "clean": """Cleans L1 segments into one L2 run that holds the newest record of each key.

`firn.clean.segments`, `firn.clean.tail.fraction`, `firn.min.compaction.lag.ms`""",
    "tier": """Combines L2 runs of similar size into one that holds the newest record of each key.

`firn.tier.runs`, `firn.tier.size.ratio`""",
    "full": """Cleans head and tail together: one record per key remains, and tombstones past their delete horizon go
when nothing older remains elsewhere. Tail segments that lose nothing stay in place.

`firn.min.cleanable.dirty.ratio`, `firn.max.compaction.lag.ms`, `firn.full.interval.ms`, `firn.delete.retention.ms`,
`firn.tombstone.fraction`""",
}

TASKS = {
    "turn": "Waits, without occupying a worker slot, until no other run works on the table.",
    "due": "Skips the lanes that this run leaves out, and those before the first one that has work.",
    "plan": "Reads metadata to find what is due and writes the plans. No JVM.",
    "compact": "`firn compact PLAN…`: writes the results into stages, where readers of the table do not see them.",
    "validate": "`firn validate PLAN…`: Great Expectations validates every result; only large jobs need a JVM.",
    "publish": "Publishes every result that passed, with one commit per job; asks first under the param `ask`.",
    "drop": "Drops the segments of every plan in one commit of metadata only.",
    "report": "Builds the data-quality pages and the table's page, and sends the metrics.",
    "verdict": "Fails the run if a topic partition or a task failed, and names it.",
    "sweep": "Discards stages and plans that are no longer needed.",
}


def of_lane(lane: str, task: str) -> str:
    """The document of a lane's task."""
    return f"{TASKS[task]}\n\n**Lane {lane}.** {LANES[lane]}"
