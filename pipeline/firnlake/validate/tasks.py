"""Turn cases into tasks of the engine: small cases share a task, a large one has a task of its own.

A case may be larger than the memory of its task: DuckDB then spills to a temporary folder.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from firnlake.engine.engine import Engine, LocalEngine, threads_per_task
from firnlake.errors import FirnError, RefusedError, UnavailableError, contained
from firnlake.validate.cases import Case, JudgedRecords, requested
from firnlake_expectations.temporary import temporary_folder

if TYPE_CHECKING:
    from firnlake_expectations.findings import Findings
    from firnlake_expectations.wording import Shown


MEMORY_BYTES: Final = 1 << 30
"""Memory limit of DuckDB per task, in bytes; DuckDB spills data beyond this limit to disk."""
HELD_BYTES: Final = MEMORY_BYTES
"""Maximum bytes that the judge holds of the cases that share a task; a larger case has a task of its own."""
TASK_BYTES: Final = 32 << 20
"""Bytes at which a shared task is full. Splitting a smaller task would cost more than it saves."""
HERE_BYTES: Final = 128 << 20
"""Maximum bytes read of cases judged in this process. For so few, a round of tasks costs more than it saves."""


@dataclass(frozen=True)
class _JudgeTask:
    """The cases of one task."""

    records: JudgedRecords
    cases: tuple[Case, ...]
    samples: "Shown"
    threads: int

    def __call__(self) -> "list[Findings]":
        from firnlake_expectations.duck import Limits
        from firnlake_expectations.judge import judge

        taken = [case.fingerprint for case in self.cases if case.fingerprint is not None]
        with temporary_folder() as folder:
            return judge(
                [replace(part, plan=number) for number, case in enumerate(self.cases) for part in case.files],
                self.records.schema,
                [case.claim for case in self.cases],
                self.records.reading,
                fingerprints=taken if len(taken) == len(self.cases) else None,
                samples=self.samples,
                bounds=Limits(self.threads, MEMORY_BYTES, folder),
                requested=requested(self.cases),
                segments=[case.segments for case in self.cases if case.segments],
            )


def findings_of(
    records: JudgedRecords, cases: Sequence[Case], samples: "Shown", engine: Engine, title: str
) -> "list[Findings | FirnError]":
    """The findings about each of ``cases``, all of the same table, lane and output level; for a case that can't be
    judged, the error. The other cases of its task are then judged again, each alone (C20).

    ``title`` names the job in progress bars and in Spark's UI.
    """
    held, read = sum(case.held for case in cases), sum(case.read for case in cases)
    if held <= HELD_BYTES and read <= HERE_BYTES:
        engine = LocalEngine()
    findings: dict[int, Findings | FirnError] = {}
    groups = _shared(cases, engine.parallelism)
    while groups:
        threads = threads_per_task(engine.parallelism, len(groups))
        dockets = [_JudgeTask(records, tuple(cases[number] for number in group), samples, threads) for group in groups]
        weights = [sum(case.held + case.read for case in docket.cases) for docket in dockets]
        judgements = engine.map(_JudgeTask.__call__, dockets, weights=weights, title=title)
        again: list[list[int]] = []
        for group, judged in zip(groups, judgements, strict=True):
            if not isinstance(judged, Exception):
                findings.update(zip(group, judged, strict=True))
            elif len(group) > 1:
                again += [[number] for number in group]
            else:
                findings[group[0]] = _unjudged(cases[group[0]], judged)
        groups = again
    return [findings[number] for number in range(len(cases))]


def _unjudged(case: Case, error: Exception) -> FirnError:
    import duckdb

    claim = case.claim
    subject = f"table {claim.table}, {claim.topic}-{claim.partition} {claim.lane}: plan {claim.plan_id} can't be judged"
    if isinstance(error, RefusedError | UnavailableError):  # of reading one of its files
        kind = RefusedError if isinstance(error, RefusedError) else UnavailableError
        return kind(f"plan {claim.plan_id} can't be validated: {error}")
    if isinstance(error, duckdb.OperationalError):  # its disk or its memory
        return UnavailableError(f"{subject}: {' '.join(str(error).split())}; try again later")
    return contained(error, subject)


def _shared(cases: Sequence[Case], workers: int) -> list[list[int]]:
    """The cases of each task: one task per worker, more if each would hold too much, fewer if there is little work."""
    weights = [case.held + case.read for case in cases]
    held = sum(case.held for case in cases)
    count = min(len(cases), max(1, min(workers, -(-sum(weights) // TASK_BYTES)), -(-held // HELD_BYTES)))
    groups: list[list[int]] = [[] for _ in range(count)]
    sizes = [0] * count
    for number in sorted(range(len(cases)), key=weights.__getitem__, reverse=True):
        least = sizes.index(min(sizes))
        groups[least].append(number)
        sizes[least] += weights[number] + 1
    return groups
