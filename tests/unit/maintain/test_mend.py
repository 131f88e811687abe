"""C36: ``firn mend`` takes the files that a person names out of main, and nothing else; a branch keeps them."""

import json
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq
import pytest

from firnlake import clock
from firnlake.engine.local import LocalEngine
from firnlake.errors import ConflictError, RefusedError
from firnlake.iceberg.authorship import properties_of
from firnlake.iceberg.branches import MENDED, REMOVED_TOMBSTONES
from firnlake.iceberg.deleter import Kind
from firnlake.lanes.erasure.certify import certify
from firnlake.maintain.maintain import maintain_table
from firnlake.maintain.mend import MOST_FILES, mend, named_files
from firnlake.table.memory import removed_tombstones
from firnlake.table.mendings import past_mendings
from firnlake.table.policy import DAY_MS
from firnlake.validate.committed import Committed
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.erasing import request
from tests.support.late import late
from tests.support.mending import failures, head, held, landed, lose, shown, take, tear, waits
from tests.support.topics import DAY, NOW, Topic, updates


@pytest.fixture
def files(topic: Topic) -> list[str]:
    """Three segments of orders-0, at offsets 0 to 1, 2 to 3 and 4."""
    return landed(topic, ["a=1", "b=1"], ["a=2", "c=1"], ["d=1"])


def test_a_torn_file_goes_to_the_branch_and_the_topic_partition_waits_no_longer(topic: Topic, files: list[str]) -> None:
    torn = tear(files[1])
    assert "is not readable as Parquet" in failures(topic)[0]
    assert waits(topic)
    (named,) = shown(topic, files[1]).files
    assert (named.readable, named.is_lost) == (0, False)
    assert "is not readable as Parquet" in (named.problem or "")
    assert take(topic, files[1])
    assert (topic.offsets(), held(topic)) == ([0, 1, 4], {files[1]})
    assert torn.exists()
    assert not waits(topic)
    topic.run(NOW, until_idle=True)
    assert [(record.offset, record.value) for record in topic.seen()] == [(0, b"1"), (1, b"1"), (4, b"1")]
    assert not waits(topic)


def test_what_can_be_read_of_it_is_told(topic: Topic) -> None:
    """The last of four row groups is damaged."""
    topic.create()
    topic.lake.set_properties(topic.table, {"write.parquet.row-group-limit": "10"})
    topic.append(updates(*(f"k{number}=v" for number in range(40))))
    (segment,) = topic.segments()
    file = on_disk(segment.path)
    damaged = pq.read_metadata(file).row_group(3).column(0).data_page_offset
    content = bytearray(file.read_bytes())
    content[damaged : damaged + 8] = b"\xff" * 8
    file.write_bytes(bytes(content))
    (named,) = shown(topic, segment.path).files
    assert (named.readable, named.file.record_count) == (30, 40)
    assert named.problem is not None


def test_a_file_that_can_be_read_is_told_as_such_and_clients_read_it_on_the_branch(
    topic: Topic, files: list[str]
) -> None:
    (named,) = shown(topic, files[1]).files
    assert (named.readable, named.problem) == (2, None)
    take(topic, files[1])
    assert [row["offset"] for row in topic.rows(MENDED)] == [2, 3]


def test_a_lost_file_is_named_by_the_summary_and_by_no_branch(topic: Topic, files: list[str]) -> None:
    lose(files[1])
    assert failures(topic)
    (named,) = shown(topic, files[1]).files
    assert (named.is_lost, named.readable) == (True, 0)
    snapshot_id = take(topic, files[1])
    table = topic.lake.table(topic.table)
    made = table.snapshot_by_id(snapshot_id or 0)
    assert made is not None
    assert json.loads(properties_of(made)["firn.mended"]) == {"lost": [files[1]]}
    assert MENDED not in table.metadata.refs
    assert topic.offsets() == [0, 1, 4]
    topic.run(NOW, until_idle=True)
    assert not waits(topic)


def test_maintenance_tells_what_the_branch_keeps_and_until_when(topic: Topic, files: list[str]) -> None:
    tear(files[1])
    take(topic, files[1])
    found = maintain_table(topic.lake, topic.table, clock.now_ms(), remove=False)
    (kept,) = [one for one in found if one.kind is Kind.REF]
    assert (kept.name, kept.files, kept.bytes) == (MENDED, 1, on_disk(files[1]).stat().st_size)
    assert "until somebody drops the branch" in kept.reason
    main = lakes.snapshot(topic.lake, topic.table)
    assert main is not None
    topic.lake.table(topic.table).manage_snapshots().create_tag(main, "audit").commit()
    topic.run(NOW, until_idle=True, force=True)
    kept_too = [one for one in maintain_table(topic.lake, topic.table, clock.now_ms(), remove=False) if not one.goes]
    reasons = {one.name: one.reason for one in kept_too if one.kind is Kind.REF}
    assert reasons["audit"] == "readers of this tag need these files, until somebody drops it"


def test_a_lost_file_beside_a_torn_one(topic: Topic, files: list[str]) -> None:
    lose(files[0])
    tear(files[1])
    take(topic, files[0], files[1])
    assert (topic.offsets(), held(topic)) == ([4], {files[1]})


def test_a_lost_file_that_is_there_again_is_not_taken(topic: Topic, files: list[str]) -> None:
    content = on_disk(files[1]).read_bytes()
    lost = lose(files[1])
    before, mending = head(topic), shown(topic, files[1])
    lost.write_bytes(content)
    with pytest.raises(ConflictError, match="was lost, and is there again"):
        mend(topic.lake, mending)
    assert head(topic) == before


def test_looking_changes_nothing(topic: Topic, files: list[str]) -> None:
    tear(files[1])
    before = head(topic)
    shown(topic, *files)
    assert head(topic) == before


def test_what_is_left_of_the_log_is_told(topic: Topic, files: list[str]) -> None:
    (left,) = named_files(topic.lake, topic.table, files[1:]).left
    assert (left.former_log_end, left.log_end, left.older_files, left.newer_files) == (4, 1, 1, 0)
    (left,) = named_files(topic.lake, topic.table, files[:1]).left
    assert (left.former_log_end, left.log_end, left.older_files, left.newer_files) == (4, 4, 0, 2)
    (left,) = named_files(topic.lake, topic.table, files).left
    assert left.log_end == -1


def test_twice_is_once(topic: Topic, files: list[str]) -> None:
    mending = shown(topic, files[1])
    first = mend(topic.lake, mending)
    before = head(topic)
    assert mend(topic.lake, mending) is None
    named = named_files(topic.lake, topic.table, [files[1]])
    assert (named.files, [*named.mended]) == ((), [files[1]])
    assert named.mended[files[1]].snapshot_id == first
    assert head(topic) == before


def test_a_lost_one_twice_is_once(topic: Topic, files: list[str]) -> None:
    lose(files[1])
    first = take(topic, files[1])
    assert named_files(topic.lake, topic.table, [files[1]]).mended[files[1]].snapshot_id == first


def test_the_branch_tells_of_a_mending_whose_snapshot_on_main_has_expired(topic: Topic, files: list[str]) -> None:
    first = take(topic, files[1])
    topic.append(updates("e=1", start=5))
    table = topic.lake.table(topic.table)
    table.maintenance.expire_snapshots().by_id(first or 0).commit()
    (past,) = past_mendings(topic.lake.table(topic.table))
    assert (past.snapshot_id, past.taken.files) == (None, (files[1],))
    assert "firn mend with a snapshot that main's history no longer has at " in str(past)
    assert named_files(topic.lake, topic.table, [files[1]]).mended == {files[1]: past}


def test_a_mending_that_was_rolled_back_has_taken_nothing_from_main(topic: Topic, files: list[str]) -> None:
    before = topic.lake.table(topic.table).metadata.current_snapshot_id
    take(topic, files[1])
    topic.lake.table(topic.table).manage_snapshots().set_current_snapshot(before).commit()
    topic.clean("full", force=True)
    assert [one.snapshot_id for one in past_mendings(topic.lake.table(topic.table))] == [None]
    with pytest.raises(RefusedError, match="has no data file"):
        shown(topic, files[1])


def test_several_at_the_same_time_take_it_once(topic: Topic, files: list[str]) -> None:
    mending = shown(topic, files[1])
    done = lakes.together(*[lambda: mend(topic.lake, mending)] * 3)
    assert sum(isinstance(one, int) for one in done) == 1, done
    assert all(one is None or isinstance(one, int) for one in done), done
    assert held(topic) == {files[1]}


def test_after_a_rollback_it_can_be_taken_again(topic: Topic, files: list[str]) -> None:
    before = topic.lake.table(topic.table).metadata.current_snapshot_id
    assert before
    take(topic, files[1])
    topic.lake.table(topic.table).manage_snapshots().set_current_snapshot(before).commit()
    assert take(topic, files[1])
    assert (topic.offsets(), held(topic)) == ([0, 1, 4], {files[1]})


def test_c22_an_appender_beside_it_is_neither_lost_nor_in_the_way(topic: Topic, files: list[str]) -> None:
    slow, catalog = late(topic.lake, topic.table.rpartition(".")[2], "yes")
    mending = shown(topic, files[1])
    with ThreadPoolExecutor(1) as other:
        taking = other.submit(mend, slow, mending)
        assert catalog.came.wait(60)
        topic.append(updates("e=1", start=5))
        catalog.go.set()
        assert taking.result()
    assert topic.offsets() == [0, 1, 4, 5]
    assert held(topic) == {files[1]}


def test_a_lost_answer_is_settled(topic: Topic, files: list[str]) -> None:
    slow, catalog = late(topic.lake, topic.table.rpartition(".")[2], "no")
    mending = shown(topic, files[1])
    assert mend(slow, mending)
    assert catalog.came.is_set()
    assert (topic.offsets(), held(topic)) == ([0, 1, 4], {files[1]})


def test_a_file_that_a_lane_has_rewritten_meanwhile_is_not_taken(topic: Topic, files: list[str]) -> None:
    mending = shown(topic, files[1])
    topic.clean("full", force=True)
    before = head(topic)
    with pytest.raises(ConflictError, match=f"it no longer has {files[1]}"):
        mend(topic.lake, mending)
    with pytest.raises(RefusedError, match="has no data file"):
        shown(topic, files[1])
    assert (head(topic), held(topic)) == (before, set())


def test_what_was_shown_on_another_history_is_not_taken(topic: Topic, files: list[str]) -> None:
    first = topic.lake.table(topic.table).metadata.snapshots[-2].snapshot_id
    mending = shown(topic, files[0])
    topic.lake.table(topic.table).manage_snapshots().set_current_snapshot(first).commit()
    with pytest.raises(ConflictError, match="main has changed"):
        mend(topic.lake, mending)


@pytest.mark.parametrize("wrong", ["nowhere.parquet", "", "{table}"])
def test_c26_a_wrong_name_is_refused(topic: Topic, files: list[str], wrong: str) -> None:
    path = wrong.format(table=topic.lake.table(topic.table).location())
    with pytest.raises(RefusedError, match="main has no data file"):
        shown(topic, files[0], path)


def test_c26_so_are_too_many(topic: Topic) -> None:
    with pytest.raises(RefusedError, match="101 files at once; allowed: up to 100"):
        shown(topic, *map(str, range(MOST_FILES + 1)))


def test_a_branch_of_somebody_else_is_not_taken_for_firns(topic: Topic, files: list[str]) -> None:
    table = topic.lake.table(topic.table)
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id or 0, MENDED).commit()
    with pytest.raises(RefusedError, match=f"{MENDED} is not Firn's"):
        take(topic, files[1])


def test_the_progress_of_other_writers_stays(topic: Topic, files: list[str]) -> None:
    table = topic.lake.table(topic.table)
    table.append(table.scan().to_arrow().slice(0, 0), {"kafka.connect.offsets.orders": "[1]"})
    snapshot_id = take(topic, files[1])
    made = topic.lake.table(topic.table).snapshot_by_id(snapshot_id or 0)
    assert made is not None
    assert properties_of(made)["kafka.connect.offsets.orders"] == "[1]"


def test_the_mending_is_not_judged_and_later_commits_are(topic: Topic, files: list[str]) -> None:
    snapshot_id = take(topic, files[1])
    with pytest.raises(RefusedError, match="is a mending, which is not judged"):
        Committed.find(topic.lake, topic.table, snapshot_id)
    topic.clean("full", force=True)
    assert Committed.find(topic.lake, topic.table, None).before.snapshot_id == snapshot_id


def test_maintenance_keeps_what_the_branch_holds(topic: Topic, files: list[str]) -> None:
    tear(files[1])
    take(topic, files[1])
    topic.run(NOW, until_idle=True)
    later = clock.now_ms() + 400 * DAY_MS
    maintain_table(topic.lake, topic.table, later, remove=True)
    maintain_table(topic.lake, topic.table, later, remove=True)
    assert held(topic) == {files[1]}
    assert on_disk(files[1]).exists()
    assert not on_disk(files[0]).exists()


def test_once_the_branch_is_dropped_it_deletes_that_too(topic: Topic, files: list[str]) -> None:
    take(topic, files[1])
    topic.lake.table(topic.table).manage_snapshots().remove_branch(MENDED).commit()
    maintain_table(topic.lake, topic.table, clock.now_ms() + 400 * DAY_MS, remove=True)
    assert not on_disk(files[1]).exists()
    assert on_disk(files[0]).exists()


def test_maintenance_works_when_the_history_of_a_lost_file_expires(topic: Topic, files: list[str]) -> None:
    lose(files[1])
    take(topic, files[1])
    found = maintain_table(topic.lake, topic.table, clock.now_ms() + 400 * DAY_MS, remove=True)
    assert [str(one) for one in found if one.exit_code] == []
    assert topic.offsets() == [0, 1, 4]


class TestErasure:
    """C30: the branch is a place where a requested key is found. No lane erases it there, so the branch blocks."""

    def blockers(self, topic: Topic) -> dict[str, str]:
        """What keeps the request from its certificate after the history has expired, and why."""
        for _ in range(2):  # what the cleaning of the first run writes is read by the second
            topic.run(NOW + 40 * DAY, force=True)
        maintain_table(topic.lake, topic.table, clock.now_ms() + 400 * DAY_MS, remove=True)
        done = certify(topic.lake, topic.table, NOW + 40 * DAY, LocalEngine(1))
        return {one.where: str(one) for problems in done.blocked.values() for one in problems}

    def test_a_key_on_the_branch_is_found_and_dropping_it_lets_go(self, topic: Topic, files: list[str]) -> None:
        take(topic, files[1])
        request(topic, b"c")
        found = self.blockers(topic)
        assert found.keys() == {f"branch {MENDED}"}
        assert ": it holds 1 record of keys to erase" in found[f"branch {MENDED}"]
        assert f"DROP BRANCH {MENDED}" in found[f"branch {MENDED}"]
        topic.lake.table(topic.table).manage_snapshots().remove_branch(MENDED).commit()
        assert self.blockers(topic) == {}

    def test_another_key_is_not(self, topic: Topic, files: list[str]) -> None:
        take(topic, files[1])
        request(topic, b"b")
        assert self.blockers(topic) == {}

    def test_a_torn_file_may_hold_any_key(self, topic: Topic, files: list[str]) -> None:
        tear(files[1])
        take(topic, files[1])
        request(topic, b"b")
        assert self.blockers(topic).keys() == {f"branch {MENDED}"}

    def test_a_lost_file_blocks_no_longer_than_its_history(self, topic: Topic, files: list[str]) -> None:
        lose(files[1])
        take(topic, files[1])
        request(topic, b"b")
        assert self.blockers(topic) == {}


class TestOlderRecords:
    """What a mending may bring back, and what it may not."""

    def test_what_the_file_alone_superseded_is_visible_again(self, topic: Topic) -> None:
        files = landed(topic, ["a=1", "b=1"], ["a=", "b=2"])
        take(topic, files[1])
        topic.run(NOW, force=True, until_idle=True)
        assert [(record.key, record.value) for record in topic.seen()] == [(b"a", b"1"), (b"b", b"1")]

    def test_what_a_cleaning_removed_for_its_sake_stays_away(self, topic: Topic) -> None:
        topic.land(updates("a=1", "b=1"), updates("a=2", "c=1", start=2)).clean("full", force=True)
        (tail,) = topic.segments()
        topic.land(updates("d=1", start=4))
        take(topic, tail.path)
        topic.run(NOW, force=True, until_idle=True)
        assert topic.offsets() == [4]

    def test_of_the_tails_tombstones_only_late_records_come_back(self, topic: Topic) -> None:
        topic.land(updates("b=1"), updates("a=1", "a=", "b=2", start=1)).clean("full", force=True)
        (tail,) = topic.segments()
        topic.land(updates("a=late"), updates("c=1", start=4))
        (left,) = named_files(topic.lake, topic.table, [tail.path]).left
        assert (left.older_files, left.newer_files) == (1, 1)
        take(topic, tail.path)
        topic.run(NOW, force=True, until_idle=True)
        assert [(record.key, record.value) for record in topic.seen()] == [(b"a", b"late"), (b"c", b"1")]

    def test_a_removed_tombstone_counts_even_if_the_log_ends_below_it(self, topic: Topic) -> None:
        """Offset 5 was removed; the mending takes all that is left."""
        topic.land(updates("b=1"), updates("a=", "c=1", start=5))
        for now in (NOW, NOW + 2 * DAY):
            topic.clean("full", now, force=True)
        assert counting(topic) == [5]
        take(topic, *(one.path for one in topic.segments()))
        assert counting(topic) == [5]
        # Another tool rewrites a file, while the log still ends below the tombstone.
        topic.append(updates("x=1", "x=2"))
        topic.lake.table(topic.table).delete("offset = 0")
        assert (topic.offsets(), counting(topic)) == ([1], [5])

    def test_a_late_record_of_it_stays_deleted(self, topic: Topic) -> None:
        topic.land(updates("b=1"), updates("a=", "c=1", start=2))
        for now in (NOW, NOW + 2 * DAY):
            topic.clean("full", now, force=True)
        assert [row["offset"] for row in topic.rows(REMOVED_TOMBSTONES)] == [2]
        take(topic, *(one.path for one in topic.segments()))
        topic.land(updates("a=late", start=1), updates("d=1", start=4))
        topic.clean("full", NOW + 2 * DAY + 1, force=True)
        assert [record.key for record in topic.seen() if record.value] == [b"d"]


def counting(topic: Topic) -> list[int]:
    """The first offsets of the files of removed tombstones that count."""
    of_table = removed_tombstones(topic.lake.table(topic.table), topic.table)
    return [one.base_offset for own in of_table.values() for one in own]
