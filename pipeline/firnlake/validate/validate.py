"""Judge the changes of plans before they are committed, or a commit in a table's history.

The judge gets both in the same form: a change, and the snapshot on which its plan was made. What is committed has no
fingerprint that it could trust: it reads the values of both sides. Small cases share a task of the engine. What a task
reads may be larger than its memory: DuckDB then spills to a temporary folder. The suites that a table names in
``firn.validate.suites`` run on the records of each result before it is published.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyiceberg.types import UUIDType

from firnlake.engine.engine import Engine, LocalEngine, balanced, threads_per_task
from firnlake.engine.spark import SparkEngine
from firnlake.errors import FirnError, RefusedError, UnavailableError, contained
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.data_files import DataFiles
from firnlake.job.change import Change
from firnlake.job.inputs import CheckedInputs
from firnlake.job.outcomes import ByPlan, PlanOutcome, Stages, carried_out, refusal
from firnlake.job.reports import new_reports
from firnlake.job.stage import Stage, title_of
from firnlake.table.columns import ColumnRoles
from firnlake.table.policy import Policies
from firnlake.validate.basis import Bases, Committed
from firnlake.validate.cases import JudgedRecords
from firnlake_expectations.case import AFTER, Case, Finding, Verdict

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from great_expectations import ExpectationSuite
    from pyspark.sql import DataFrame

    from firnlake.engine.worker import Batches
    from firnlake_expectations.wording import Shown


TASK_BYTES: Final = 32 << 20
"""Bytes at which a shared task is full. Splitting a smaller task would cost more than it saves."""
HERE_BYTES: Final = 128 << 20
"""Maximum bytes read of cases judged in this process. For so few, a round of tasks costs more than it saves."""
SUITES_BYTES: Final = 1 << 30
"""Maximum bytes of a result that the suites of the table's owner get as one data frame of pandas."""


def validate(lake: Lake, stages: Stages, engine: Engine) -> list[PlanOutcome]:
    """Judge the results of every plan in ``stages``, in that order, in tasks of ``engine``.

    Errors are collected, not raised (C20). Plans that compaction refused have no result and are left out. A result that
    has a verdict is not judged again. A failed verdict marks its plan as failed. Validation results are stored below
    the table's metadata (``job.reports``).
    """
    # Most jobs of a run were planned on one snapshot, whose manifests are read once.
    work = partial(_of_stage, lake, engine, Bases())
    return carried_out(lake, "validate", stages, work, (RefusedError,))


def judge(commit: Committed, engine: Engine) -> list[Verdict]:
    """Judge the plans of ``commit``; no suite of the table's owner is run."""
    table = commit.table
    records = JudgedRecords(DataFiles.of(table), ColumnRoles.of(table, commit.identifier))
    cases = [records.case(change, basis) for change, basis in commit.changes()]
    title = f"verify {commit.identifier}, snapshot {commit.snapshot.snapshot_id}"
    samples = Policies.parse(commit.identifier, table.properties).default.report_samples
    found, errors = verdicts_of(records, cases, samples, engine, title)
    for error in errors.values():
        raise error
    return [found[case.claim.plan_id] for case in cases]


def _of_stage(lake: Lake, engine: Engine, bases: Bases, identifier: str) -> list[PlanOutcome]:
    stage = Stage.load(lake, identifier)
    if not stage.changes:
        refused = next((error for plan in stage.plans if (error := refusal(stage.loaded, plan))), None)
        raise refused or RefusedError(f"stage {identifier} has no result; allowed: plans that were compacted")
    verdicts, errors = dict(stage.verdicts), dict[str, FirnError]()
    if unjudged := [one for plan_id, one in stage.changes.items() if plan_id not in verdicts]:
        # What is changed from now on was not judged.
        files = stage.stored()
        fresh, errors = _judged(stage, unjudged, engine, bases)
        if fresh:
            verdicts |= fresh
            stage.record_verdicts(verdicts, files)
    for plan_id, one in verdicts.items():
        if not one.passed:
            errors.setdefault(plan_id, RefusedError(f"validation failed: {one.reason}"))
    return [
        PlanOutcome(identifier, plan.id, plan.title, errors.get(plan.id), verdict=verdicts.get(plan.id))
        for plan in stage.plans
        if plan.id in verdicts or plan.id in errors
    ]


def _judged(stage: Stage, changes: Sequence[Change], engine: Engine, bases: Bases) -> ByPlan[Verdict]:
    """Great Expectations' verdicts on ``changes`` of ``stage``, by plan id, and the errors of those that can't be
    judged."""
    from firnlake_expectations.checkpoint import UnjudgedError, verdicts

    started, target = time.monotonic(), stage.loaded
    policy = Policies.parse(stage.target, target.properties).default
    records = JudgedRecords(DataFiles.of(target), ColumnRoles.of(target, stage.target))
    conflicts = CheckedInputs.find(target, [one.plan for one in changes], bases.manifests(target)).conflicts
    errors: dict[str, FirnError] = {**conflicts}
    cases: list[Case] = []
    for one in changes:
        plan = one.plan
        if plan.id not in conflicts:
            try:
                cases.append(records.case(one, bases.of(target, plan), trusted=policy.validate_by == "fingerprint"))
            except Exception as error:  # noqa: BLE001  # whatever it is, it concerns one plan
                errors[plan.id] = contained(error, f"{plan.subject} can't be judged")
    # Reports outlive the records that are to be erased, so they must not show samples of these.
    samples = "none" if any(case.secret is not None for case in cases) else policy.report_samples
    title = title_of(stage.plans)
    found, failed = verdicts_of(records, cases, samples, engine, f"validate {stage.target}, {title}")
    errors |= failed
    if not found:
        return {}, errors
    try:
        with new_reports(target) as reports:
            seen = [case for case in cases if case.claim.plan_id in found]
            for plan_id, more in _own_findings(target, records, seen, samples, reports, engine).items():
                found[plan_id] = replace(found[plan_id], expectations=(*found[plan_id].expectations, *more))
            seconds = time.monotonic() - started
            return verdicts([*found.values()], reports, job=stage.job_id, seconds=seconds), errors
    except UnjudgedError as error:
        unjudged = UnavailableError(f"table {stage.target}: {title} can't be validated: {error}")
        return {}, dict.fromkeys(found, unjudged) | errors


def _judged_cases(records: JudgedRecords, samples: "Shown", threads: int, cases: Sequence[Case]) -> list[Verdict]:
    from firnlake_expectations.judge import judge

    return judge(cases, records.schema, records.reading, samples=samples, threads=threads)


def verdicts_of(
    records: JudgedRecords, cases: Sequence[Case], samples: "Shown", engine: Engine, title: str
) -> ByPlan[Verdict]:
    """The judge's verdicts on ``cases``, all of the same table, lane and output level, and the errors of those that
    can't be judged. The other cases of such a task are then judged again, each alone (C20).

    ``title`` names the job in progress bars and in Spark's UI.
    """
    weights = [case.read for case in cases]
    if sum(weights) <= HERE_BYTES:
        engine = LocalEngine()
    verdicts, errors = dict[str, Verdict](), dict[str, FirnError]()
    groups = balanced(weights, max(1, min(engine.parallelism, -(-sum(weights) // TASK_BYTES))))
    while groups:
        threads = threads_per_task(engine.parallelism, len(groups))
        dockets = [[cases[number] for number in group] for group in groups]
        sizes = [sum(case.read for case in docket) for docket in dockets]
        work = partial(_judged_cases, records, samples, threads)
        judgements = engine.map(work, dockets, weights=sizes, title=title)
        again: list[list[int]] = []
        for group, judged in zip(groups, judgements, strict=True):
            if not isinstance(judged, Exception):
                verdicts |= {one.claim.plan_id: one for one in judged}
            elif len(group) > 1:
                again += [[number] for number in group]
            else:
                case = cases[group[0]]
                errors[case.claim.plan_id] = _unjudged(case, judged)
        groups = again
    return verdicts, errors


def _unjudged(case: Case, error: Exception) -> FirnError:
    import duckdb

    claim = case.claim
    subject = f"table {claim.table}, {claim.topic}-{claim.partition} {claim.lane}: plan {claim.plan_id} can't be judged"
    if isinstance(error, duckdb.OperationalError):  # its disk or its memory
        return UnavailableError(f"{subject}: {' '.join(str(error).split())}; try again later")
    return contained(error, subject)


def _own_findings(
    target: Table, records: JudgedRecords, cases: Sequence[Case], samples: "Shown", reports: "Path", engine: Engine
) -> "Mapping[str, tuple[Finding, ...]]":
    """The findings of the suites of table ``target``, by plan id; empty if it names none.

    One batch holds all records that a plan has written to the topic. Raises RefusedError if a suite can't be loaded.
    """
    identifier = ".".join(target.name())
    policy = Policies.parse(identifier, target.properties).default
    writing = [one for one in cases if one.written and one.claim.counts["records_out"]]
    if policy.validate_suites == "none" or not writing:
        return {}
    from firnlake_expectations.checkpoint import findings_of_suites

    suites = [_suite(target, identifier, name.strip()) for name in policy.validate_suites.split(",")]
    offset = records.reading.offset
    found: dict[str, tuple[Finding, ...]] = {}
    for case in writing:
        try:
            frame = _frame(records, case, engine)
            found[case.claim.plan_id] = findings_of_suites(suites, frame, identifier, offset, samples, reports)
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, it is about the records of one plan
            told = " ".join(str(error).split())
            if not isinstance(error, RefusedError):  # it may quote a record
                told = f"{type(error).__name__}: {told}" if samples == "full" else type(error).__name__
            sentence = "The table's suites are run on all records of the result."
            failed = Finding("firn.validate.suites", sentence, passed=False, observed=f"Not judged: {told}.")
            found[case.claim.plan_id] = (failed,)
    return found


def _frame(records: JudgedRecords, case: Case, engine: Engine) -> "pd.DataFrame | DataFrame":
    """What the plan of ``case`` has written to the topic: in pandas, or if it is larger than SUITES_BYTES, in Spark.
    Raises RefusedError if it is, and ``engine`` is not Spark."""
    if case.written > SUITES_BYTES:
        if isinstance(engine, SparkEngine):
            return engine.read(_readers(records, case), _plain(records))
        raise RefusedError(f"{case.written:,} bytes without Spark; allowed: {SUITES_BYTES:,}")
    import pandas as pd

    read = [batch for one in _readers(records, case) for batch in one()]
    # Types of its own would make numbers floats or objects where one is NULL.
    return pa.Table.from_batches(read, _plain(records)).to_pandas(types_mapper=pd.ArrowDtype)


def _readers(records: JudgedRecords, case: Case) -> "list[Callable[[], Batches]]":
    """A reader for each file of the records that the plan of ``case`` has written to the topic."""
    parts, schema = (one for one in case.parts if one.side == AFTER), _plain(records)
    return [partial(_visible, one.read, schema, records.reading.level) for one in parts]


def _visible(
    read: "Callable[[Sequence[str] | None], Iterable[pa.RecordBatch]]", schema: pa.Schema, level: str
) -> "Batches":
    """The records that ``read`` gives, without quarantined ones and removed tombstones, whose levels are below 0."""
    for batch in read(None):
        stays = pc.fill_null(pc.greater_equal(batch.column(level), 0), fill_value=True)
        columns = zip(batch.filter(stays).columns, schema, strict=True)
        yield pa.RecordBatch.from_arrays([_as_plain(values, column.type) for values, column in columns], schema=schema)


def _as_plain(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_fixed_size_binary(values.type) and pa.types.is_string(kind):
        return pa.array([None if value is None else str(UUID(bytes=value)) for value in values.to_pylist()], kind)
    return values.cast(kind)


def _plain(records: JudgedRecords) -> pa.Schema:
    """The schema of ``records`` with types that Spark knows: none with 64-bit offsets or of a fixed length. A UUID is
    text, as in Spark."""
    uuids = {field.name for field in records.files.schema.fields if isinstance(field.field_type, UUIDType)}
    kinds = (pa.string() if one.name in uuids else _plain_type(one.type) for one in records.schema)
    return pa.schema([one.with_type(kind) for one, kind in zip(records.schema, kinds, strict=True)])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_plain_type(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    return kind


def _suite(target: Table, identifier: str, location: str) -> "ExpectationSuite":
    from firnlake_expectations.checkpoint import read_suite

    try:
        with target.io.new_input(location).open() as file:
            return read_suite(file.read().decode())
    except (OSError, ValueError, AttributeError, TypeError) as error:  # Great Expectations checks few values
        raise RefusedError(
            f"table {identifier}: property firn.validate.suites names {location!r}, but {error}; allowed: the location "
            "of a suite in Great Expectations' JSON, with at least one expectation"
        ) from error
