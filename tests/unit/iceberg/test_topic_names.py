"""Any topic name goes from landing to publish without a JVM, and no file lies outside of the table (C21, C26)."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from firnlake.iceberg.branches import QUARANTINE, QUARANTINED, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.land import land
from firnlake.inspect.status.gather import status_of
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.job.stage import stages_of
from firnlake.plan.make import plan_table
from firnlake.table import records
from firnlake.table.policies import Policies
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.lakes import NOW, TABLE, Fates, kafka, ready, row
from tests.support.publishing import publish

KAFKA_NAMES = ("a.segment.bytes", "a.delete", "firn_quarantine", "_firn", "a.b-c_D", "-", "t" * 249)
"""Kafka allows letters, digits, `.`, `_` and `-`, up to 249 of them."""
OTHER_NAMES = ("..", ".", "a/../../b", "50%", "größe é", 'it\'s "so"', "x=y&z", "{{ name }}", "<b>", "`t`", "a\nb")
"""Names that a foreign writer may have used."""


@pytest.mark.parametrize("topic", [*KAFKA_NAMES, *OTHER_NAMES])
def test_c26_any_topic_goes_all_the_way(lake: Lake, tmp_path: Path, topic: str) -> None:
    records.create(lake, TABLE, {f'firn.topic."{topic}".segment.bytes': "4711"})
    assert Policies.parse(TABLE, lake.table(TABLE).properties).of(topic).segment_bytes == 4711
    landed = [row(0, topic=topic), row(1, topic=topic), row(2, key=None, topic=topic), row(3, key=b"z", topic=topic)]
    pq.write_table(kafka(landed), tmp_path / "records.parquet")
    around = {*lake.home.parent.iterdir(), *tmp_path.iterdir()}
    land(lake, TABLE, [tmp_path / "records.parquet"])

    (plan,) = plan_table(lake, TABLE, Lane.FULL, NOW)
    assert (plan.topic, plan.segment_bytes) == (topic, 4711)
    assert Plan.read(plan.write(tmp_path / "plans")) == plan
    kept = [landed[1], landed[2] | {"level": QUARANTINED}, landed[3]]
    publish(lake, ready(lake, plan, kept, Fates(superseded=1, quarantined=1)).identifier)

    assert {(one["topic"], one["offset"]) for one in rows(lake.table(TABLE))} == {(topic, 1), (topic, 3)}
    quarantine = on_branch(lake.table(TABLE), QUARANTINE)
    assert [(one["topic"], one["offset"]) for one in rows(quarantine)] == [(topic, 2)]
    status = status_of(lake, TABLE, NOW)
    assert [part.topic_partition.topic for part in status.partitions] == [topic]
    assert stages_of(lake, TABLE) == []
    for table in (lake.table(TABLE), quarantine):
        for path in map(on_disk, lakes.paths(table)):
            assert on_disk(table.location()) / "data" in path.resolve().parents
            assert path.exists()
    assert {*lake.home.parent.iterdir(), *tmp_path.iterdir()} - around == {tmp_path / "plans"}


def rows(table: Table) -> list[lakes.Row]:
    return list(table.scan().to_arrow().to_pylist())
