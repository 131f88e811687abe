"""A stage that has changed since it was validated, or no longer fits the table, is refused and changes nothing."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from firnlake.errors import ConflictError, FirnError, RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.job.collect import discard
from firnlake.job.failures import ABANDONED
from firnlake.job.plan import Plan
from firnlake.job.stage import Stage, stages_of
from firnlake.table import records
from infra.foreign.files import files_under, on_disk
from tests.support import lakes
from tests.support.foreign import delete_rows
from tests.support.lakes import TABLE, Fates, append, compacted, judged, row
from tests.support.publishing import publish
from tests.support.stages import document, documents_of
from tests.support.tampering import input_gone


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
        on_disk(file.file_path).unlink()


def files_cut(_: Lake, stage: Stage) -> None:
    for file in stage.files[stage.job_id].all:
        path = on_disk(file.file_path)
        path.write_bytes(path.read_bytes()[:-1])


def list_gone(_: Lake, stage: Stage) -> None:
    for path in documents_of(stage).glob("*.avro"):
        path.unlink()


def row_deleted(lake: Lake, stage: Stage) -> None:
    delete_rows(lake, stage.plans[0].inputs[0].path, [0])


REFUSALS = {
    "no verdict": Refusal(without_verdict, RefusedError, "is compacted; allowed: a passing verdict on its result"),
    "a failed verdict": Refusal(failed_verdict, RefusedError, r"failed validation \(one_record_per_key\)"),
    "a verdict on an older result": Refusal(another_result, RefusedError, "allowed: a passing verdict on its result"),
    "unbalanced counts": Refusal(
        unbalanced_counts, RefusedError, "records in = 2, but .* = 3; allowed: records in = out [+] superseded"
    ),
    "deleted stage files": Refusal(files_gone, RefusedError, "gone or changed in length: 1 of 1 file, first file:"),
    "files of another length": Refusal(files_cut, RefusedError, "gone or changed in length: 1 of 1 file, first file:"),
    "a deleted list of files": Refusal(list_gone, RefusedError, "its list of files is gone"),
    "an input that is gone": Refusal(input_gone, ConflictError, r"inputs are no longer live in lake.records: 1 of 2"),
    "a row-level delete": Refusal(row_deleted, ConflictError, "a row-level delete was added to"),
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
    with pytest.raises(RefusedError, match=r"there is no stage lake\.records/0{16}; allowed: a stage that `firn"):
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
    home = on_disk(lake.table(TABLE).location())
    before = files_under(home)
    with pytest.raises(ConflictError):
        publish(lake, stage.identifier)
    assert files_under(home) == before


def test_c22_a_stage_of_a_dropped_table_is_none_of_the_next_table_of_its_name(lake: Lake, stage: Stage) -> None:
    lake.catalog.drop_table(TABLE)
    records.create(lake, TABLE, {})
    append(lake, [row(0)])
    with pytest.raises(RefusedError, match=r"there is no stage lake\.records/"):
        publish(lake, stage.identifier)
    assert lakes.offsets(lake) == [0]
