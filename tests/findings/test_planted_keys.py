"""R12, R23: a certificate says that no file of the table holds the key, and one does; what it says of logs."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.schema import Schema
from pyiceberg.table.statistics import PartitionStatisticsFile
from pyiceberg.table.update import AssertTableUUID, SetPartitionStatisticsUpdate
from pyiceberg.typedef import Record as AvroRecord
from pyiceberg.types import NestedField, StringType

from firnlake import clock
from firnlake.iceberg.side_branches import Blob, write_puffin
from firnlake.job.lane import Lane
from firnlake.lanes.erasure.certificate import content_of
from firnlake.lanes.erasure.certify import certify
from firnlake.maintain.maintain import MaintenancePart, maintain_table
from firnlake.table.records import PARTITION_FIELDS
from tests.support.erasing import erasures, request
from tests.support.other_lives import head
from tests.support.topics import DAY, Record, Topic

KEY = b"nobody"
"""Neither the lowest nor the highest key of a file: no bound tells it."""


def batch(*partitions: int) -> list[Record]:
    return [Record(offset, key, b"1", one) for one in partitions for offset, key in enumerate((b"a", KEY, b"z"))]


def erase(topic: Topic) -> None:
    """Erase the key from main, and let the history from before expire."""
    topic.lake.set_properties(topic.table, {"firn.erase.history": "expire"})
    asked = request(topic, KEY, now=clock.now_ms(), within_ms=4 * DAY)
    topic.clean(Lane.ERASE, clock.now_ms(), force=True)
    now_ms = asked.deadline_ms - 2 * DAY + 1
    maintain_table(topic.lake, topic.table, now_ms, remove=True, parts={MaintenancePart.SNAPSHOTS})


def certified(topic: Topic) -> bool:
    """True when the request gets its certificate."""
    certify(topic.lake, topic.table, clock.now_ms(), topic.engine)
    return bool(erasures(topic).certificates)


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="R12: what a tag alone holds is not searched")
def test_r12_a_topic_partition_that_only_a_tag_holds_blocks(topic: Topic) -> None:
    topic.land(batch(1))
    topic.lake.table(topic.table).manage_snapshots().create_tag(head(topic), "audit").commit()
    topic.lake.table(topic.table).delete("partition = 1")
    erase(topic.land(batch(0)))
    assert not certified(topic)


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="R12: what a stray alone holds is not searched")
def test_r12_a_topic_partition_that_only_a_stray_holds_blocks(topic: Topic) -> None:
    topic.land(batch(0))
    with topic.lake.table(topic.table).update_spec() as unpartitioned:
        for name in PARTITION_FIELDS:
            unpartitioned.remove_field(name)
    topic.append(batch(1, 2))
    with topic.lake.table(topic.table).update_spec() as partitioned:
        for name in PARTITION_FIELDS:
            partitioned.add_identity(name)
    erase(topic)
    assert not certified(topic)


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="R12: a file outside the location is not seen")
def test_r12_a_file_outside_the_location_that_an_expiry_left_behind_blocks(topic: Topic, tmp_path: Path) -> None:
    topic.create().lake.set_properties(topic.table, {"write.data.path": f"file://{tmp_path}/elsewhere"})
    topic.append(batch(0))
    request(topic, KEY, now=clock.now_ms())
    topic.clean(Lane.ERASE, clock.now_ms(), force=True)
    table = topic.lake.table(topic.table)
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    old = [snapshot.snapshot_id for snapshot in table.snapshots() if snapshot.snapshot_id not in heads]
    # PyIceberg's expiry changes metadata only.
    table.maintenance.expire_snapshots().by_ids(old).commit()
    assert not certified(topic)


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="R12: an Avro data file passes as a manifest")
def test_r12_an_unreferenced_data_file_in_avro_blocks(topic: Topic) -> None:
    erase(topic.land(batch(0)))
    table = topic.lake.table(topic.table)
    output = table.io.new_output(f"{table.location()}/data/part-0.avro")
    with AvroOutputFile[AvroRecord](output, Schema(NestedField(1, "key", StringType(), required=True)), "data") as file:
        file.write_block([AvroRecord(KEY.decode())])
    assert not certified(topic)


def statistics(topic: Topic) -> None:
    """A sketch that keeps whole values, in the statistics file of main's head."""
    table, snapshot_id = topic.lake.table(topic.table), head(topic)
    location = f"{table.location()}/metadata/values.puffin"
    file = write_puffin(table, location, [Blob("most-frequent-values", KEY)], snapshot_id, 1)
    with table.update_statistics() as update:
        update.set_statistics(file)


def partition_statistics(topic: Topic) -> None:
    """Partition statistics of main's head in which the key is a value."""
    table = topic.lake.table(topic.table)
    output = table.io.new_output(f"{table.location()}/metadata/partition-stats.parquet")
    with output.create() as stream:
        pq.write_table(pa.table({"partition": [{"key": KEY}]}), stream)
    facts = {"snapshot-id": head(topic), "statistics-path": output.location, "file-size-in-bytes": len(output)}
    file = PartitionStatisticsFile.model_validate(facts)
    update = SetPartitionStatisticsUpdate.model_validate({"partition-statistics": file})
    topic.lake.catalog.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (update,))


def test_r23_a_certificate_says_that_logs_are_not_covered(topic: Topic) -> None:
    erase(topic.land(batch(0)))
    certified(topic)
    (issued,) = erasures(topic).certificates
    assert "logs of Airflow and Spark" in " ".join(content_of(issued)["not_covered"])


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="R23: a search opens no statistics")
@pytest.mark.parametrize("attach", [statistics, partition_statistics])
def test_r23_statistics_that_hold_the_key_block(topic: Topic, attach: Callable[[Topic], None]) -> None:
    erase(topic.land(batch(0)))
    attach(topic)
    assert not certified(topic)
