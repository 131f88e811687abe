"""A job of three plans on one table, and what readers see of it."""

from firnlake.iceberg.catalog import Lake
from firnlake.job.plan import Plan
from firnlake.job.stage import Stage
from firnlake.publish.attempts import PublishResult
from tests.support.lakes import TABLE, Fates, Part, row

PARTITIONS = 3


def part(plan: Plan) -> Part:
    return Part(plan, [row(1, partition=plan.partition, value=b"1")], Fates(superseded=1))


def seen(lake: Lake) -> dict[int, list[int]]:
    """The offsets that a reader sees, by partition."""
    found: dict[int, list[int]] = {}
    for one in lake.table(TABLE).scan(selected_fields=("partition", "offset")).to_arrow().to_pylist():
        found.setdefault(one["partition"], []).append(one["offset"])
    return {partition: sorted(offsets) for partition, offsets in sorted(found.items())}


def cleaned(*partitions: int) -> dict[int, list[int]]:
    """The records that a reader sees once only ``partitions`` are cleaned."""
    return {number: [1] if number in partitions else [0, 1] for number in range(PARTITIONS)}


def done_of(published: PublishResult) -> list[str]:
    return [one.plan_id for one in published.publications]


def bad_of(stage: Stage) -> Plan:
    """The plan that something is wrong with."""
    return stage.plans[0]


def input_gone(lake: Lake, _: Stage) -> None:
    lake.table(TABLE).delete("partition = 0 and offset = 0")
