"""C36: of the different records at one offset, the one that a person names stays; the others go to a branch."""

from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField
from pyiceberg.transforms import IdentityTransform

from firnlake.errors import ConflictError, RefusedError
from firnlake.iceberg.branches import MENDED, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import adopt
from firnlake.maintain.conflicting_records import ScannedOffsets, conflicts_at
from firnlake.maintain.mend import Mending, mend
from firnlake.table.record_contents import MOST_OFFSETS
from firnlake.table.segments import read
from firnlake.table.topic_partition import TopicPartition
from firnlake_expectations.wording import DIGEST
from tests.support.adopted import BY_ID, CDC, CDC_SCHEMA, append, change, make, validated
from tests.support.late import late
from tests.support.mending import chosen, failures, head, held, waits
from tests.support.topics import NOW, Record, Topic, updates


@pytest.fixture
def files(topic: Topic) -> list[str]:
    """Two segments of orders-0 that hold different records at offset 1, and the same at offset 2."""
    topic.land(updates("a=1", "b=1", "c=1"))
    topic.append([Record(1, b"b", b"other"), Record(2, b"c", b"1"), Record(3, b"d", b"1")])
    return [one.path for one in topic.segments()]


def scanned(topic: Topic, first: int, last: int | None = None, partition: int = 0) -> ScannedOffsets:
    where = TopicPartition(topic.name, partition)
    return conflicts_at(topic.lake, topic.table, where, range(first, (first if last is None else last) + 1))


def values(topic: Topic, branch: str) -> list[tuple[int, Any]]:
    return [(row["offset"], row["value"]) for row in topic.rows(branch)]


def test_different_records_are_found_and_copies_are_not(topic: Topic, files: list[str]) -> None:
    found = scanned(topic, 0, 3)
    (conflict,) = found.conflicts
    assert (conflict.offset, conflict.differ_in) == (1, ("value",))
    assert [(one.path, one.position) for one in conflict.copies] == [(files[0], 1), (files[1], 0)]
    assert len({one.digest for one in conflict.copies}) == 2
    assert found.newer_files == 0
    assert scanned(topic, 2).conflicts == ()


@pytest.mark.parametrize(("samples", "shown"), [("none", ""), ("keys", f"(key={DIGEST}"), ("full", "value='other'")])
def test_no_more_is_shown_than_reports_show(topic: Topic, files: list[str], samples: str, shown: str) -> None:
    assert files
    topic.lake.set_properties(topic.table, {"firn.report.samples": samples})
    (conflict,) = scanned(topic, 1).conflicts
    assert shown in conflict.shown[conflict.copies[1].digest]
    assert all(("value" in text) == (samples == "full") for text in conflict.shown.values())


@pytest.mark.parametrize(("kept", "value", "taken"), [(0, b"1", b"other"), (1, b"other", b"1")])
def test_one_stays_and_the_other_goes_to_the_branch(
    topic: Topic, files: list[str], kept: int, value: bytes, taken: bytes
) -> None:
    (why,) = failures(topic)
    assert "offset 1 of orders-0 holds different records" in why
    assert f": firn mend {topic.table} --partition orders-0 --offset 1" in why
    assert waits(topic)
    assert mend(topic.lake, chosen(topic, 1, files[kept]))
    assert values(topic, "main")[1:3] == [(1, value), (2, b"1")]
    assert values(topic, MENDED) == [(1, taken)]
    assert not waits(topic)
    topic.run(NOW, force=True, until_idle=True)
    assert [(record.offset, record.value) for record in topic.seen()] == [(0, b"1"), (1, value), (2, b"1"), (3, b"1")]
    assert not waits(topic)


def test_a_digest_names_a_record_where_one_file_holds_both(topic: Topic, files: list[str]) -> None:
    """Lane `merge` copies both into one file."""
    assert files
    topic.clean("merge", force=True)
    (merged,) = topic.segments()
    (conflict,) = scanned(topic, 1).conflicts
    assert {one.path for one in conflict.copies} == {merged.path}
    with pytest.raises(RefusedError, match="names 2 different records; allowed: one of sha256:"):
        conflict.parted(merged.path)
    (kept, *_) = conflict.copies
    assert conflict.parted(kept.digest.removeprefix(DIGEST)) == conflict.parted(kept.digest)
    mend(topic.lake, chosen(topic, 1, conflict.copies[0].digest))
    assert [value for offset, value in values(topic, "main") if offset == 1] == [b"1"]
    topic.run(NOW, force=True, until_idle=True)
    assert topic.offsets() == [0, 1, 2, 3]


def test_three_records_and_a_further_copy_of_the_one_that_stays(topic: Topic, files: list[str]) -> None:
    topic.append([Record(1, b"b", b"1")])
    topic.append([Record(1, b"x", b"third")])
    mending = chosen(topic, 1, files[0])
    assert sorted(one.row["value"][0].as_py() for one in mending.copies) == [b"other", b"third"]
    mend(topic.lake, mending)
    topic.run(NOW, force=True, until_idle=True)
    assert topic.offsets() == [0, 1, 2, 3]
    assert sorted(value for _, value in values(topic, MENDED)) == [b"other", b"third"]


def test_a_range(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "c=1"), updates("e=1", start=9))
    topic.append(updates("a=2", "b=2", "c=1"))
    first = topic.segments()[0].path
    assert [one.offset for one in scanned(topic, 0, 9).conflicts] == [0, 1]
    mend(topic.lake, chosen(topic, 0, first, last=9))
    assert len({value for offset, value in values(topic, "main") if offset < 3}) == 1
    assert [offset for offset, _ in values(topic, MENDED)] == [0, 1]


def test_an_offset_of_the_range_that_the_kept_file_lacks_is_refused(topic: Topic, files: list[str]) -> None:
    topic.append([Record(0, b"a", b"other")])
    with pytest.raises(RefusedError, match=f"offset 0 of orders-0: --keep {files[1]} names no record"):
        chosen(topic, 0, files[1], last=1)


def test_twice_is_once(topic: Topic, files: list[str]) -> None:
    mending = chosen(topic, 1, files[0])
    assert mend(topic.lake, mending)
    before = head(topic)
    assert mend(topic.lake, mending) is None
    assert scanned(topic, 1).conflicts == ()
    assert head(topic) == before


def test_an_offset_whose_last_record_a_cleaning_has_removed_since_is_known(topic: Topic, files: list[str]) -> None:
    first = mend(topic.lake, chosen(topic, 1, files[0]))
    topic.append(updates("b=newer", start=4))
    topic.run(NOW, force=True, until_idle=True)
    assert 1 not in topic.offsets()
    found = scanned(topic, 1)
    assert (found.conflicts, {offset: one.snapshot_id for offset, one in found.mended.items()}) == ((), {1: first})
    with pytest.raises(RefusedError, match="orders-0 has no record at offset 7"):
        scanned(topic, 7)


def test_a_record_that_is_delivered_again_can_be_taken_again(topic: Topic, files: list[str]) -> None:
    mend(topic.lake, chosen(topic, 1, files[0]))
    topic.append([Record(1, b"b", b"other")])
    assert mend(topic.lake, chosen(topic, 1, files[0]))
    assert values(topic, MENDED) == [(1, b"other"), (1, b"other")]


def test_the_other_choice_meanwhile_is_a_conflict(topic: Topic, files: list[str]) -> None:
    """Otherwise neither record would be left."""
    other = chosen(topic, 1, files[1])
    mend(topic.lake, chosen(topic, 1, files[0]))
    with pytest.raises(ConflictError, match=f"other row-level deletes apply to {files[1]}"):
        mend(topic.lake, other)
    assert [value for offset, value in values(topic, "main") if offset == 1] == [b"1"]


def test_a_file_that_is_rewritten_meanwhile_is_a_conflict(topic: Topic, files: list[str]) -> None:
    mending = chosen(topic, 1, files[0])
    topic.clean("merge", force=True)
    before = head(topic)
    with pytest.raises(ConflictError, match="it no longer has"):
        mend(topic.lake, mending)
    assert head(topic) == before


def test_c22_an_append_in_between_does_no_harm_and_is_not_taken(topic: Topic, files: list[str]) -> None:
    """The appended record is at the same offset; nobody has seen it."""
    mending = chosen(topic, 1, files[0])
    slow, catalog = late(topic.lake, topic.table.rpartition(".")[2], "no")
    topic.append([Record(1, b"b", b"third")])
    assert mend(slow, mending)
    assert catalog.came.is_set()
    assert sorted(value for offset, value in values(topic, "main") if offset == 1) == [b"1", b"third"]
    assert len(scanned(topic, 1).conflicts) == 1


def test_hidden_records_are_no_conflict(topic: Topic, files: list[str]) -> None:
    mend(topic.lake, chosen(topic, 1, files[0]))
    assert held(topic)
    assert scanned(topic, 0, 3).conflicts == ()


@pytest.mark.parametrize(
    ("first", "last", "partition", "why"),
    [
        (7, None, 0, "orders-0 has no record at offset 7; allowed"),
        (7, 9, 0, "orders-0 has no record at offset 7 to 9; allowed"),
        (1, None, 5, "has no topic partition orders-5; found: orders-0"),
        (0, MOST_OFFSETS, 0, "1,001 offsets at once; allowed: up to 1,000"),
    ],
)
def test_c26_what_is_not_there_is_refused(
    topic: Topic, files: list[str], first: int, last: int | None, partition: int, why: str
) -> None:
    assert files
    with pytest.raises(RefusedError, match=why):
        scanned(topic, first, last, partition)


def test_c26_so_is_another_record_to_keep(topic: Topic, files: list[str]) -> None:
    assert files
    with pytest.raises(RefusedError, match="--keep elsewhere names no record; allowed: one of "):
        chosen(topic, 1, "elsewhere")


def test_an_adopted_table_with_further_partition_fields(lake: Lake) -> None:
    """The records that are taken lie in two Iceberg partitions."""
    make(lake, CDC, CDC_SCHEMA, PartitionField(2, 1000, IdentityTransform(), "region"))
    rows = [change(lsn, lsn, region=region, name="a", ref=bytes(16)) for lsn, region in enumerate("xyx")]
    append(lake, CDC, *rows)
    append(lake, CDC, *(one | {"name": "b", "score": 0.5} for one in rows))
    adopt(lake, CDC, BY_ID)
    (where,) = read(lake.table(CDC), CDC).by_partition
    found = conflicts_at(lake, CDC, where, range(3))
    assert [one.differ_in for one in found.conflicts] == [("name", "score")] * 3
    kept = {copy.digest for one in found.conflicts for copy in one.copies if copy.row["name"][0].as_py() == "a"}
    parts = [one.parted(next(copy.digest for copy in one.copies if copy.digest in kept)) for one in found.conflicts]
    staying, copies = (tuple(copy for part in parts for copy in part[side]) for side in (0, 1))
    assert mend(lake, Mending(CDC, found.snapshot_id, copies=copies, staying=staying))

    def names(branch: str) -> list[tuple[int, str, str]]:
        seen = on_branch(lake.table(CDC), branch).scan().to_arrow().to_pylist()
        return sorted((one["lsn"], one["region"], one["name"]) for one in seen)

    assert names("main") == [(0, "x", "a"), (1, "y", "a"), (2, "x", "a")]
    assert names(MENDED) == [(0, "x", "b"), (1, "y", "b"), (2, "x", "b")]
    validated(lake, CDC)
