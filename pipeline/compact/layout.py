"""Which input segments share a task, and so which become one output segment.

Values never go through a shuffle: a Spark task reads some segments that are neighbours in offset order and writes one.
Iceberg's own scan planning packs them, in the order in which the stage lists them (Iceberg docs, "Spark configuration",
read options): with a lookback of 1 a bin is closed before the next is opened.
"""

from pipeline.plan import Plan


def read_options(plan: Plan) -> dict[str, str]:
    """Read options by which one task takes the inputs of one output segment."""
    options = {"lookback": "1"}
    if plan.inputs_per_segment is None:
        # A bin is closed at segment.bytes of input. Opening a file counts nothing: the point is to have few segments.
        return options | {"split-size": str(plan.segment_bytes), "file-open-cost": "1"}
    # When opening costs more than any file's bytes, every file weighs the same and a bin is a number of files (C13).
    weight = max(segment.bytes for segment in plan.inputs)
    return options | {"split-size": str(weight * plan.inputs_per_segment), "file-open-cost": str(weight)}


def write_options(plan: Plan, several_partitions: bool) -> dict[str, str]:
    """Options that leave the tasks as they were read: no shuffle, no further sort, rolled at ``segment.bytes``.

    With ``several_partitions`` a task's records are of several Iceberg partitions in turn, because the table is
    partitioned by more than makes a segment: then a task writes a segment for each, all open at the same time.
    """
    return {
        "use-table-distribution-and-ordering": "false",
        "fanout-enabled": str(several_partitions).lower(),
        "target-file-size-bytes": str(plan.segment_bytes),
    }
