"""Publishing: exactly what was validated, all or nothing, beside appenders and other publishers, and only once."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException

from pipeline.care.jobs import discard
from pipeline.care.sweep import sweep
from pipeline.errors import ConflictError, FirnError, RefusedError
from pipeline.history.published_plans import published
from pipeline.lake import Lake, records
from pipeline.plan import Job, Plan, plan_table
from pipeline.publish import Publication, publish
from pipeline.segments import read
from pipeline.sense import Lane
from pipeline.staging.open import open_stage
from pipeline.staging.stage import ABANDONED, Stage, stages_of
from tests.support import lakes
from tests.support.foreign import append_again, delete_rows, rename, written_under_no_spec
from tests.support.lakes import (
    NOW,
    TABLE,
    Fates,
    append,
    append_file,
    append_two,
    compacted,
    judged,
    only_plan,
    ready,
    row,
)
from tests.support.stages import crash_after_commit, data_of, document, documents_of, kept


@pytest.fixture
def plan(lake: Lake, table: str) -> Plan:
    """A full plan over two segments of orders-0, the first of which the second supersedes."""
    append_two(lake, row(0), row(1))
    return only_plan(lake)


@pytest.fixture
def stage(lake: Lake, plan: Plan) -> Stage:
    """The stage of ``plan``, ready to be published."""
    return ready(lake, plan, [row(1)], Fates(superseded=1))


class TestPublishing:
    """The effect of one commit."""

    def test_c22_inputs_out_and_results_in_with_one_commit(self, lake: Lake, stage: Stage) -> None:
        before = len(lake.table(TABLE).metadata.snapshots)
        done = publish(lake, stage.identifier)
        after = lake.table(TABLE)
        assert lakes.offsets(lake) == [1]
        assert [one.level for one in read(after, TABLE)] == [3]
        assert len(after.metadata.snapshots) == before + 1
        assert done.snapshot_id == lakes.snapshot(lake)
        assert (done.table, done.plan_id, done.attempts, done.repeated) == (TABLE, stage.job_id, 1, False)

    def test_c22_readers_of_the_snapshot_before_are_not_disturbed(self, lake: Lake, stage: Stage) -> None:
        reader = lake.table(TABLE).scan()
        publish(lake, stage.identifier)
        assert sorted(reader.to_arrow()["offset"].to_pylist()) == [0, 1]

    def test_c23_the_files_are_the_stages_own(self, lake: Lake, stage: Stage) -> None:
        staged = {file.file_path for file in stage.files[stage.job_id].all}
        publish(lake, stage.identifier)
        assert lakes.paths(lake.table(TABLE)) == staged

    def test_c24_the_summary_holds_the_record_counts_and_where_they_come_from(self, lake: Lake, stage: Stage) -> None:
        done = publish(lake, stage.identifier)
        snapshot = lake.table(TABLE).snapshot_by_id(done.snapshot_id)
        assert snapshot is not None
        assert snapshot.summary is not None
        counts = done.counts
        assert counts is not None
        expected = counts.summary() | {
            "firn.records-in": "2",
            "firn.records-out": "1",
            "firn.superseded": "1",
            "firn.tombstones-removed": "0",
            "firn.expired": "0",
            "firn.quarantined": "0",
            "firn.segments-in": "2",
            "firn.segments-out": "1",
            "firn.plan-id": stage.job_id,
            "firn.lane": "full",
            "firn.topic-partition": "orders-0",
            "firn.reason": stage.plans[0].reason,
            "firn.now-ms": str(NOW),
        }
        assert {name: snapshot.summary[name] for name in expected} == expected
        assert snapshot.summary["total-records"] == "1"
        assert snapshot.summary["deleted-data-files"] == "2"

    def test_the_stage_is_gone_afterwards_and_its_data_is_not(self, lake: Lake, stage: Stage) -> None:
        publish(lake, stage.identifier)
        assert stages_of(lake, TABLE) == []
        assert not documents_of(stage).exists()
        assert all(lakes.on_disk(path).exists() for path in lakes.paths(lake.table(TABLE)))

    @pytest.mark.usefixtures("table")
    @pytest.mark.parametrize("name", ["50% é.parquet", "a%20b.parquet", "q?x=1#y.parquet", "it's [0-9]* {a,b}"])
    def test_segments_may_have_any_name(self, lake: Lake, name: str) -> None:
        path = rename(lake, append_file(lake, [row(0)]), name)
        append(lake, [row(1)])
        stage = ready(lake, only_plan(lake), [row(1)], Fates(superseded=1))
        publish(lake, stage.identifier)
        assert lakes.offsets(lake) == [1]
        assert lakes.on_disk(path).exists(), "snapshots before still hold it"

    def test_an_empty_result_is_published(self, lake: Lake, table: str) -> None:
        append(lake, [row(0, value=None, level=3), row(1, partition=1)])
        (plan,) = [one for one in plan_table(lake, table, Lane.FULL, NOW, force=True) if one.partition == 0]
        publish(lake, ready(lake, plan, [], Fates(tombstones_removed=1)).identifier)
        assert lakes.offsets(lake) == [1]

    @pytest.mark.parametrize("topic", ["größe: 50%", "x=y&z#?/+ '"])
    @pytest.mark.usefixtures("table")
    def test_topics_whose_paths_are_escaped_lose_nothing(self, lake: Lake, topic: str) -> None:
        append_two(lake, row(0, topic=topic), row(1, topic=topic))
        publish(lake, ready(lake, only_plan(lake), [row(1, topic=topic)], Fates(superseded=1)).identifier)
        assert lakes.offsets(lake) == [1]


@dataclass(frozen=True)
class Refusal:
    """Actions before a publish, and the error that follows."""

    spoil: Callable[[Lake, Stage], None]
    error: type[FirnError]
    message: str


def without_verdict(_: Lake, stage: Stage) -> None:
    document(stage, "verdicts").unlink()


def failed_verdict(lake: Lake, stage: Stage) -> None:
    without_verdict(lake, stage)
    judged(lake, stage, passed=False)


def another_result(lake: Lake, stage: Stage) -> None:
    document(stage, "result").unlink()
    compacted(lake, stage.plans[0], [row(0)], Fates(superseded=1))


def unbalanced_counts(lake: Lake, stage: Stage) -> None:
    """As another version of Firn may have recorded it."""
    assert stage.result is not None
    for kind in ("result", "verdicts"):
        document(stage, kind).unlink()
    counts = stage.result.plans[stage.job_id].counts.model_copy(update={"superseded": 2})
    own = stage.result.plans[stage.job_id].model_copy(update={"counts": counts})
    stage.documents.write("result", stage.result.model_copy(update={"plans": {stage.job_id: own}}).model_dump_json())
    judged(lake, Stage.load(lake, stage.identifier))


def files_gone(_: Lake, stage: Stage) -> None:
    for file in stage.files[stage.job_id].all:
        lakes.on_disk(file.file_path).unlink()


def files_cut(_: Lake, stage: Stage) -> None:
    for file in stage.files[stage.job_id].all:
        path = lakes.on_disk(file.file_path)
        path.write_bytes(path.read_bytes()[:-1])


def list_gone(_: Lake, stage: Stage) -> None:
    for path in documents_of(stage).glob("*.avro"):
        path.unlink()


def input_gone(lake: Lake, _: Stage) -> None:
    lake.table(TABLE).delete("offset = 0")


def row_deleted(lake: Lake, stage: Stage) -> None:
    delete_rows(lake, stage.plans[0].inputs[0].path, [0])


def other_table(lake: Lake, _: Stage) -> None:
    lake.catalog.drop_table(TABLE)
    records.create(lake, TABLE, {})
    append(lake, [row(0)])


REFUSALS = {
    "no verdict": Refusal(without_verdict, RefusedError, "is compacted; allowed: a passing verdict on its result"),
    "a failed verdict": Refusal(failed_verdict, RefusedError, r"failed validation \(one_record_per_key\)"),
    "a verdict on an older result": Refusal(another_result, RefusedError, "allowed: a passing verdict on its result"),
    "unbalanced counts": Refusal(
        unbalanced_counts, RefusedError, "2 records in, but .* = 3; allowed: records in = out [+] superseded"
    ),
    "deleted stage files": Refusal(
        files_gone, RefusedError, "1 of 1 files are gone or have changed in length, first file:"
    ),
    "files of another length": Refusal(
        files_cut, RefusedError, "1 of 1 files are gone or have changed in length, first file:"
    ),
    "a deleted list of files": Refusal(list_gone, RefusedError, "its list of files is gone"),
    "an input that is gone": Refusal(input_gone, ConflictError, "1 of 2 inputs are no longer live"),
    "a row-level delete": Refusal(row_deleted, ConflictError, "a row-level delete was added to"),
    "another table's uuid": Refusal(other_table, RefusedError, "was made for table lake.records with UUID"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_c23_c26_what_is_refused_leaves_the_target_as_it_was(lake: Lake, stage: Stage, case: str) -> None:
    refusal = REFUSALS[case]
    refusal.spoil(lake, stage)
    before = lake.table(TABLE).metadata_location
    with pytest.raises(refusal.error, match=refusal.message) as caught:
        publish(lake, stage.identifier)
    assert "\n" not in str(caught.value)
    assert lake.table(TABLE).metadata_location == before
    assert stages_of(lake, TABLE) == [stage.identifier], "it is there to be looked at, and discarded"
    seen = lakes.offsets(lake)
    discard(lake, stage.identifier)
    assert lakes.offsets(lake) == seen
    assert stages_of(lake, TABLE) == []


def test_c26_what_is_no_stage_is_refused(lake: Lake, table: str) -> None:
    with pytest.raises(RefusedError, match=r"'lake\.records' is not a stage; allowed: <namespace>\.<table>/<job id>"):
        publish(lake, table)
    with pytest.raises(RefusedError, match=r"there is no stage lake\.records/0{16}; allowed: one that `firn stages"):
        publish(lake, f"{table}/{'0' * 16}")


def test_c23_a_stage_without_a_result_is_refused(lake: Lake, plan: Plan) -> None:
    lakes.opened(lake, plan)
    with pytest.raises(RefusedError, match="is planned; allowed: a passing verdict"):
        publish(lake, plan.stage)


def test_a_stage_that_is_being_discarded_is_refused(lake: Lake, stage: Stage) -> None:
    before = lake.table(TABLE).metadata_location
    stage.documents.write(ABANDONED, "{}")
    with pytest.raises(ConflictError, match=f"stage {stage.identifier} was discarded meanwhile; plan again"):
        publish(lake, stage.identifier)
    assert lake.table(TABLE).metadata_location == before


def test_c25_a_mark_that_was_never_finished_is_a_mark(lake: Lake, stage: Stage) -> None:
    stage.documents.write(ABANDONED, "{}")
    document(Stage.load(lake, stage.identifier), ABANDONED).write_bytes(b"")
    with pytest.raises(ConflictError, match="was discarded meanwhile"):
        publish(lake, stage.identifier)
    assert lakes.offsets(lake) == [0, 1]


def test_c25_what_a_publish_that_was_refused_has_prepared_goes(lake: Lake, stage: Stage) -> None:
    lake.table(TABLE).delete("offset = 0")
    home = lakes.on_disk(lake.table(TABLE).location())
    before = lakes.files_under(home)
    with pytest.raises(ConflictError):
        publish(lake, stage.identifier)
    assert lakes.files_under(home) == before


class TestTombstones:
    """C9: a tombstone goes only while nothing outside the inputs can hold an older record."""

    def removal(self, lake: Lake) -> Stage:
        """A stage that removes the tombstone at offset 50; the log ends at 60."""
        append(lake, [row(50, value=None, level=3), row(60, key=b"z", level=3)])
        return ready(lake, only_plan(lake), [row(60, key=b"z")], Fates(tombstones_removed=1))

    @pytest.mark.usefixtures("table")
    @pytest.mark.parametrize("offset", [0, 59])
    def test_c9_an_older_segment_that_landed_since_refuses_it(self, lake: Lake, offset: int) -> None:
        stage = self.removal(lake)
        append(lake, [row(offset)])
        before = lake.table(TABLE).metadata_location
        with pytest.raises(ConflictError, match=r"removes 1 tombstones below offset 60, but segment orders-0 L0"):
            publish(lake, stage.identifier)
        assert lake.table(TABLE).metadata_location == before
        assert lakes.offsets(lake) == sorted([50, 60, offset])

    @pytest.mark.usefixtures("table")
    @pytest.mark.parametrize("others", [{"offset": 61}, {"offset": 0, "partition": 1}, {"offset": 0, "topic": "other"}])
    def test_c9_newer_records_and_other_partitions_do_not(self, lake: Lake, others: dict[str, int | str]) -> None:
        stage = self.removal(lake)
        append(lake, [row(0) | others])
        publish(lake, stage.identifier)
        assert lakes.offsets(lake) == sorted([60, int(others["offset"])])

    @pytest.mark.usefixtures("table")
    def test_c9_without_a_removal_late_records_do_not_matter(self, lake: Lake) -> None:
        append(lake, [row(50), row(60)])
        stage = ready(lake, only_plan(lake), [row(60)], Fates(superseded=1))
        append(lake, [row(0)])
        publish(lake, stage.identifier)
        assert lakes.offsets(lake) == [0, 60]

    @pytest.mark.usefixtures("table")
    def test_c9_a_file_that_may_hold_older_records_refuses_it(self, lake: Lake) -> None:
        stage = self.removal(lake)
        path = written_under_no_spec(lake, [row(59), row(70, partition=3)])
        with pytest.raises(ConflictError, match=f"but segment {path} with older offsets has landed since"):
            publish(lake, stage.identifier)
        assert lakes.offsets(lake) == [50, 59, 60, 70]

    @pytest.mark.usefixtures("table")
    @pytest.mark.parametrize("others", [{"offset": 61}, {"topic": "other"}, {"partition": 1}])
    def test_c9_a_file_that_can_not_hold_them_does_not(self, lake: Lake, others: dict[str, int | str]) -> None:
        stage = self.removal(lake)
        written_under_no_spec(lake, [row(0) | others, row(99, partition=3) | others])
        publish(lake, stage.identifier)
        assert 50 not in lakes.offsets(lake)

    @pytest.mark.usefixtures("table")
    def test_c20_a_segment_without_offsets_that_landed_since_refuses_it(self, lake: Lake) -> None:
        stage = self.removal(lake)
        append(lake, [row(61), row(62) | {"offset": None}])
        with pytest.raises(ConflictError, match=r"orders-0 L0 \[offsets unknown\]"):
            publish(lake, stage.identifier)


@pytest.mark.usefixtures("table")
class TestListedTwice:
    """A data file that the table lists twice is planned, read and taken out twice."""

    def test_c24_both_listings_go_and_the_counts_say_so(self, lake: Lake) -> None:
        append_again(lake, append_file(lake, [row(0), row(1)]))
        append(lake, [row(2)])
        plan = only_plan(lake)
        assert (len(plan.inputs), plan.records) == (2, 5)
        stage = ready(lake, plan, [row(2)], Fates(superseded=4))
        publish(lake, stage.identifier)
        assert lakes.offsets(lake) == [2]
        snapshot = lake.table(TABLE).current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        assert (snapshot.summary["firn.records-in"], snapshot.summary["deleted-records"]) == ("5", "5")
        assert snapshot.summary["total-records"] == "1"

    def test_c22_one_more_listing_than_planned_means_plan_again(self, lake: Lake) -> None:
        path = append_file(lake, [row(0)])
        append(lake, [row(1)])
        stage = ready(lake, only_plan(lake), [row(1)], Fates(superseded=1))
        append_again(lake, path)
        with pytest.raises(ConflictError, match=rf"lists 2 records of {path}, the plan 1; plan again"):
            publish(lake, stage.identifier)
        assert lakes.offsets(lake) == [0, 0, 1]

    def test_c13_copies_are_never_taken_apart_by_a_group(self, lake: Lake) -> None:
        for offset in range(3):
            append(lake, [row(offset)])
        append_again(lake, append_file(lake, [row(3)]))
        with lake.table(TABLE).transaction() as transaction:
            transaction.set_properties({"firn.merge.segments": "4"})
        (plan,) = plan_table(lake, TABLE, Lane.MERGE, NOW)
        assert [one.records for one in plan.inputs] == [1, 1, 1, 2]
        publish(lake, ready(lake, plan, [row(0), row(1), row(2), row(3), row(3)]).identifier)
        assert lakes.offsets(lake) == [0, 1, 2, 3, 3]


class TestOnce:
    """C25: publishing twice, one after the other or at once, changes the table once."""

    def test_c25_publishing_again_changes_nothing(self, lake: Lake, stage: Stage) -> None:
        first = publish(lake, stage.identifier)
        before = lake.table(TABLE).metadata_location
        again = publish(lake, stage.identifier)
        assert (again.snapshot_id, again.repeated, again.attempts) == (first.snapshot_id, True, 0)
        assert lake.table(TABLE).metadata_location == before

    def test_c25_a_crash_before_the_stage_was_dropped_is_finished(
        self, lake: Lake, stage: Stage, tmp_path: Path
    ) -> None:
        crash_after_commit(lake, stage, tmp_path / "copy")
        assert stages_of(lake, TABLE) == [stage.identifier]
        assert publish(lake, stage.identifier).repeated
        assert stages_of(lake, TABLE) == []
        assert lakes.offsets(lake) == [1]
        assert lakes.publishes(lake, stage.plans[0]) == [lakes.snapshot(lake)]

    def test_c25_a_second_stage_of_a_published_job_leaves_no_files(
        self, lake: Lake, stage: Stage, tmp_path: Path
    ) -> None:
        """Two processes make the same stage, one after the other has published: its results are nobody's."""

        def elsewhere() -> None:
            discard(lake, stage.identifier)
            publish(lake, ready(lake, stage.plans[0], [row(1)], Fates(superseded=1)).identifier)

        late = lakes.files_under(data_of(stage))
        kept(stage, tmp_path / "copy", elsewhere)
        assert late < lakes.files_under(data_of(stage))
        assert publish(lake, stage.identifier).repeated
        assert not late & lakes.files_under(data_of(stage))
        assert lakes.offsets(lake) == [1]

    def test_c25_who_compacts_again_what_is_published_leaves_no_files(self, lake: Lake, stage: Stage) -> None:
        """Its stage can be opened no more: the inputs are gone for that."""
        publish(lake, stage.identifier)
        with pytest.raises(ConflictError, match="no longer live"):
            open_stage(lake, Job(stage.plans))
        assert stages_of(lake, TABLE) == []

    def test_c25_publishing_at_the_same_time_changes_the_table_once(self, lake: Lake, stage: Stage) -> None:
        found = lakes.together(*[lambda: publish(Lake.embedded(lake.home), stage.identifier)] * 3)
        assert all(isinstance(one, Publication) for one in found), found
        assert {one.snapshot_id for one in found if isinstance(one, Publication)} == set(
            lakes.publishes(lake, stage.plans[0])
        )
        assert len(lakes.publishes(lake, stage.plans[0])) == 1
        assert lakes.offsets(lake) == [1]
        assert stages_of(lake, TABLE) == []

    def test_c22_of_overlapping_plans_one_wins_and_the_other_replans(self, lake: Lake, plan: Plan) -> None:
        later = only_plan(lake, now_ms=NOW + 1)
        assert later.id != plan.id
        stages = [ready(lake, one, [row(1)], Fates(superseded=1)).identifier for one in (plan, later)]
        found = lakes.together(*[lambda name=name: publish(Lake.embedded(lake.home), name) for name in stages])
        assert sorted(type(one).__name__ for one in found) == ["ConflictError", "Publication"]
        assert lakes.offsets(lake) == [1]
        assert len(lakes.publishes(lake, plan)) + len(lakes.publishes(lake, later)) == 1

    def test_c25_publish_and_discard_at_the_same_time(self, lake: Lake, stage: Stage) -> None:
        actions: list[Callable[[], object]] = [
            lambda: publish(Lake.embedded(lake.home), stage.identifier),
            lambda: discard(Lake.embedded(lake.home), stage.identifier),
        ]
        found = lakes.together(*actions)
        was_published = published(lake.table(TABLE), stage.job_id) is not None
        assert lakes.offsets(lake) == ([1] if was_published else [0, 1]), found
        assert stages_of(lake, TABLE) == []

    def test_a_lost_race_frees_the_stage_for_discarding(self, lake: Lake, stage: Stage) -> None:
        input_gone(lake, stage)
        with pytest.raises(ConflictError):
            publish(lake, stage.identifier)
        assert list(sweep(lake, TABLE).discarded) == [stage.identifier]


class TestBesideAppenders:
    """C22: appenders never fail because of Firn, and none of their records is lost."""

    def test_c22_a_commit_between_plan_and_publish_stays(self, lake: Lake, stage: Stage) -> None:
        append(lake, [row(2)])
        publish(lake, stage.identifier)
        assert lakes.offsets(lake) == [1, 2]

    def test_c22_appending_while_publishing_loses_nothing(self, lake: Lake, table: str) -> None:
        partitions, appenders, each = 4, 2, 8
        for offset in range(2):
            append(lake, [row(offset, partition=number) for number in range(partitions)])
        plans = plan_table(lake, table, Lane.FULL, NOW, force=True)
        stages = [ready(lake, one, [row(1, partition=one.partition)], Fates(superseded=1)) for one in plans]
        published_all = threading.Event()

        def publish_all() -> int:
            own = Lake.embedded(lake.home)
            try:
                return sum(publish(own, stage.identifier).attempts for stage in stages)
            finally:
                published_all.set()

        def appending(first: int) -> int:
            own = Lake.embedded(lake.home)
            number = 0
            while number < each or not published_all.is_set():
                append_anyhow(own, first + number)
                number += 1
            return number

        attempts, *counts = lakes.together(
            publish_all,
            *[lambda first=first: appending(first) for first in (100, 10_000)],
        )
        assert isinstance(attempts, int), attempts
        expected = [1] * partitions
        for first, count in zip((100, 10_000), counts, strict=True):
            assert isinstance(count, int), count
            expected += range(first, first + count)
        assert lakes.offsets(lake) == sorted(expected)
        assert len(counts) == appenders
        assert stages_of(lake, table) == []


def append_anyhow(lake: Lake, offset: int) -> None:
    """Append as a writer with a retry of its own does: two appenders alone get in each other's way as well."""
    while True:
        try:
            lake.table(TABLE).append(lakes.stored([row(offset, partition=9)]))
        except CommitFailedException:
            continue
        return
