"""Documentation of the lanes in Markdown, which Airflow shows beside the tasks."""

DAG = """
### {table}

Kafka-grade compaction, one lane after the other: **retain** → **merge** → **clean** → **tier** → **full**. A lane plans
what is due by the table's own properties; the plans run in Spark or without it, each result is judged by Great
Expectations before one atomic commit publishes it, and writers go on appending meanwhile. With nothing due no Spark is
started.

- Runs start when a threshold is crossed, by the clock (`{schedule}`, UTC), and by hand (▶ opens a form).
- The clock of a run's decisions is its logical date, or when it was due. A backfill cleans as of each date.
- A topic partition that fails holds up no other: `verdict` fails the run and names it with the reason.
- What is due, and what is in the way: `firn status {table}`, or the page *Firn* in the menu.
"""

LANES = {
    "retain": """Drops whole segments past retention, oldest first, by metadata alone. Only under `firn.cleanup.policy`
`delete` or `compact,delete`.

`firn.retention.ms`, `firn.retention.bytes`, `firn.active.segments`""",
    "merge": """Copies landed segments (L0) into fewer, larger ones (L1). No record is lost or changed.

`firn.merge.segments`, `firn.segment.bytes`, `firn.leave.to.full.fraction`""",
    "clean": """Makes L1 segments a run at L2 with the newest record of each key.

`firn.clean.segments`, `firn.clean.tail.fraction`, `firn.min.compaction.lag.ms`""",
    "tier": """Makes several runs of similar size one, with the newest record of each key.

`firn.tier.runs`, `firn.tier.size.ratio`""",
    "full": """Cleans head and tail together: one record per key, tombstones go when their time is up and nothing older
is left outside. Segments of the tail that lose nothing stay in place.

`firn.min.cleanable.dirty.ratio`, `firn.max.compaction.lag.ms`, `firn.full.interval.ms`, `firn.delete.retention.ms`,
`firn.tombstone.fraction`""",
}

TASKS = {
    "turn": "Waits, in no worker slot, until no other run works on the table.",
    "plan": "Senses from metadata what is due and writes the plans down. No JVM.",
    "compact": "`firn compact PLAN…`: the results lie in stages, invisible to readers of the table.",
    "validate": "`firn validate STAGE…`: Great Expectations judges every plan's result; a JVM only for large jobs.",
    "publish": "Commits every result that passed, with one commit a job; asks before if the run was told to.",
    "drop": "Drops the segments of every plan: one commit, by metadata alone.",
    "report": "Builds the data-quality pages and the table's page, and sends its metrics.",
    "verdict": "Fails the run when a topic partition or a task failed, and names it.",
    "sweep": "Discards stages and plans that nobody needs any more.",
}


def of_lane(lane: str, task: str) -> str:
    """The document of a lane's task."""
    return f"{TASKS[task]}\n\n**Lane {lane}.** {LANES[lane]}"
