"""Turn cases into tasks of the engine: small cases share a task, a large one is spread over buckets."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from firnlake.engine.engine import Engine
from firnlake.engine.local import LocalEngine
from firnlake.errors import FirnError, UnavailableError
from firnlake.validate.cases import Case, JudgedFile, JudgedRecords, requested

if TYPE_CHECKING:
    import pyarrow as pa

    from firnlake_expectations.findings import Findings, Place
    from firnlake_expectations.in_buckets import KeyBuckets
    from firnlake_expectations.judge import Limits
    from firnlake_expectations.tables import Part
    from firnlake_expectations.wording import Shown


R = TypeVar("R")

MEMORY_BYTES: Final = 1 << 30
"""Memory limit of DuckDB per task, in bytes; DuckDB spills data beyond this limit to disk."""
SPREAD_BYTES: Final = MEMORY_BYTES // 2
"""The same limit for a task that only spreads a file over buckets and compares no records."""
HELD_BYTES: Final = MEMORY_BYTES
"""Maximum bytes that the judge holds of a case; a larger case is spread over buckets."""
READ_BYTES: Final = 16 << 30
"""Maximum bytes that the judge reads of a case; a larger case is spread over buckets as well."""
TASK_BYTES: Final = 32 << 20
"""Bytes at which a shared task is full. Splitting a smaller task would cost more than it saves."""
HERE_BYTES: Final = 128 << 20
"""Maximum bytes of cases that are judged in this process. For so few, a round of tasks costs more than it saves."""
BUCKETS_PER_HELD: Final = 4
"""Number of buckets for each HELD_BYTES of a wide case, because comparing records takes several times their memory."""
MOST_BUCKETS: Final = 256
MOST_THREADS: Final = 4
"""Maximum number of threads per task when there are fewer tasks than workers."""


@dataclass(frozen=True)
class _JudgeTask:
    """The cases of one task."""

    records: JudgedRecords
    cases: tuple[Case, ...]
    samples: "Shown"
    threads: int

    def __call__(self) -> "list[Findings]":
        from firnlake_expectations.judge import Limits, judge

        taken = [case.fingerprint for case in self.cases if case.fingerprint is not None]
        with tempfile.TemporaryDirectory(prefix="firn-judge-", ignore_cleanup_errors=True) as folder:
            return judge(
                self.records.parts(self.cases),
                self.records.schema,
                [case.claim for case in self.cases],
                self.records.reading,
                fingerprints=taken if len(taken) == len(self.cases) else None,
                samples=self.samples,
                bounds=Limits(self.threads, MEMORY_BYTES, folder),
                requested=requested(self.cases),
            )


def findings_of(records: JudgedRecords, cases: Sequence[Case], samples: "Shown", engine: Engine) -> "list[Findings]":
    """The findings about each of ``cases``, all of the same table, lane and output level.

    Raises a FirnError that names plan and file if a file is unreadable, and UnavailableError if the judge itself fails.
    """
    wide = [number for number, case in enumerate(cases) if _is_wide(case)]
    narrow = [number for number in range(len(cases)) if number not in set(wide)]
    if not wide and sum(case.read for case in cases) <= HERE_BYTES:
        engine = LocalEngine()
    groups = _shared(cases, narrow, engine.parallelism)
    threads = max(1, min(engine.parallelism // max(len(groups), 1), MOST_THREADS))
    dockets = [_JudgeTask(records, tuple(cases[number] for number in group), samples, threads) for group in groups]
    weights = [sum(case.held + case.read for case in docket.cases) for docket in dockets]
    findings: dict[int, Findings] = {}
    judgements = engine.map(_JudgeTask.__call__, dockets, weights=weights, title="validate") if dockets else []
    for group, judged in zip(groups, judgements, strict=True):
        findings.update(zip(group, _raised(judged), strict=True))
    for number in wide:
        findings[number] = _wide(records, cases[number], samples, engine)
    return [findings[number] for number in range(len(cases))]


def _raised(result: R | Exception) -> R:
    """The findings of a task; if the task raised an exception, raises that."""
    if not isinstance(result, Exception):
        return result
    if isinstance(result, FirnError):
        raise result
    import duckdb

    if isinstance(result, duckdb.Error):
        raise UnavailableError(f"the judge failed: {' '.join(str(result).split())}; try again") from result
    raise result


def _is_wide(case: Case) -> bool:
    """True if the case is spread over buckets. Transactions need all records of a producer in one place, so a case
    with transactions is spilled to disk by DuckDB instead."""
    return not case.claim.transactional and (case.held > HELD_BYTES or case.read > READ_BYTES)


def _shared(cases: Sequence[Case], numbers: Sequence[int], workers: int) -> list[list[int]]:
    """Cases grouped by task: one task per worker, more if each would hold too much, fewer if there is little work."""
    weights = {number: cases[number].held + cases[number].read for number in numbers}
    if not weights:
        return []
    held = sum(cases[number].held for number in numbers)
    count = min(len(weights), max(1, min(workers, -(-sum(weights.values()) // TASK_BYTES)), -(-held // HELD_BYTES)))
    groups: list[list[int]] = [[] for _ in range(count)]
    sizes = [0] * count
    for number in sorted(weights, key=lambda number: weights[number], reverse=True):
        least = sizes.index(min(sizes))
        groups[least].append(number)
        sizes[least] += weights[number] + 1
    return groups


@dataclass(frozen=True)
class _Share:
    """The files of a wide case for one spreading task."""

    records: JudgedRecords
    case: Case
    files: tuple[JudgedFile, ...]

    @property
    def parts(self) -> "list[Part]":
        return [self.records.part(file, 0, self.case.claim) for file in self.files]


def _wide(records: JudgedRecords, case: Case, samples: "Shown", engine: Engine) -> "Findings":
    from firnlake_expectations.in_buckets import KeyBuckets
    from firnlake_expectations.promises.promise import POSITION_DELETING
    from firnlake_expectations.tables import Layout

    trusted, flagged = case.fingerprint is not None, case.claim.lane in POSITION_DELETING
    keys = min(max(engine.parallelism, -(-case.held * BUCKETS_PER_HELD // HELD_BYTES)), MOST_BUCKETS)
    buckets = KeyBuckets(
        Layout(
            records.schema,
            records.reading,
            closely=not trusted,
            requested=requested([case]),
            flagged=flagged,
        ),
        case.claim,
        keys,
        # The promises of lanes that write position deletes do not concern offsets.
        0 if flagged else max(1, keys // 4),
    )
    findings = _in_buckets(records, case, "none" if trusted else samples, buckets, engine)
    if case.fingerprint is not None and (findings.broken or findings.fingerprint != case.fingerprint):
        closely = _in_buckets(records, case, samples, buckets.closely(), engine)
        findings = closely.differs(case.fingerprint)
    return _with_values(records, case, findings, engine) if samples == "full" else findings


def _in_buckets(
    records: JudgedRecords, case: Case, samples: "Shown", buckets: "KeyBuckets", engine: Engine
) -> "Findings":
    from firnlake_expectations.findings import Findings

    shares = [_Share(records, case, (file,)) for file in case.files]
    spread, gather = partial(_spread, buckets), partial(_gather, buckets, samples)
    done = engine.shuffle(spread, gather, shares, buckets.every, title=f"validate {case.claim.plan_id}")
    return Findings.together(_raised(one) for one in done)


def _spread(buckets: "KeyBuckets", share: _Share) -> "Iterator[tuple[int, pa.Table]]":
    with _bounds(SPREAD_BYTES) as bounds:
        yield from buckets.spread(share.parts, bounds)


def _gather(buckets: "KeyBuckets", samples: "Shown", bucket: int, tables: "Iterable[pa.Table]") -> "Findings":
    with _bounds(MEMORY_BYTES) as bounds:
        return buckets.gather(bucket, tables, samples, bounds)


@contextmanager
def _bounds(memory: int) -> "Iterator[Limits]":
    from firnlake_expectations.judge import Limits

    with tempfile.TemporaryDirectory(prefix="firn-judge-", ignore_cleanup_errors=True) as folder:
        yield Limits(1, memory, folder)


def _with_values(records: JudgedRecords, case: Case, findings: "Findings", engine: Engine) -> "Findings":
    from firnlake_expectations.findings import wanted, with_values

    places = wanted([findings], [case.claim])
    if not places:
        return findings
    shares = [_Share(records, case, (file,)) for file in case.files]
    told: dict[Place, str | None] = {}
    for one in engine.map(partial(_values, places), shares, title=f"values of {case.claim.plan_id}"):
        for place, value in _raised(one).items():
            told.setdefault(place, value)
    return with_values([findings], [case.claim], told)[0]


def _values(places: "frozenset[Place]", share: _Share) -> "dict[Place, str | None]":
    from firnlake_expectations.findings import values_of

    return values_of(share.parts, share.records.reading, places)
