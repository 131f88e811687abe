"""Trials of the steps around a cleaning, which need no Spark: landing, retention, collecting. A second each.

What each has to hold is known beforehand: a landing is there as a whole or not at all, retention takes whole segments
of what is old enough and never the log end, collecting changes nothing that anybody can read.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow.parquet as pq

from firnlake import clock
from firnlake.errors import FirnError, OutcomeUnknownError, UnavailableError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import job_folder, job_of
from firnlake.ingest.land import land
from firnlake.job.lane import Lane
from firnlake.maintain.maintain import maintain_table
from firnlake.plan.make import plan_table
from firnlake.publish.publish_jobs import retain_plans
from firnlake.table import records
from infra.foreign.files import on_disk
from tests.faults.harness import faulty_files
from tests.faults.harness.child import Child, Ended
from tests.faults.harness.fault import CATALOG, Fault, Kind
from tests.faults.harness.faulty import faulty
from tests.faults.harness.injector import FIRED
from tests.faults.harness.model import Place, unbalanced
from tests.faults.harness.trial import Trial
from tests.support.lakes import held
from tests.support.topics import DAY, NOW, Record, kafka_rows, record_of

STEPS: Final = 6
RETENTION_MS: Final = 5 * DAY
PROPERTIES: Final = {
    "firn.cleanup.policy": "compact,delete",
    "firn.retention.ms": str(RETENTION_MS),
    "firn.active.segments": "0",
}
_CALLS: Final = (
    *("load_table", "commit_table", "open metadata", "open list", "open manifest"),
    *("write data", "write metadata", "write list", "write manifest", "delete data", "delete manifest", "delete list"),
    *("list documents", "list staged"),
)
_COMMIT: Final = "commit_table"
_KINDS: Final = (*(kind for kind in Kind if kind is not Kind.PAUSE), Kind.KILL, Kind.KILL, Kind.LOST_ANSWER)
"""Steps in which no other writer intervenes: each makes one commit, and tests of that commit cover its races."""


@dataclass
class Stand:
    """The setting of a trial, and the records that readers have to see."""

    random: Random
    lake: Lake
    table: str
    folder: Path
    segments: list[list[Record]] = field(default_factory=list)
    """Those that are in the table, in the order of landing; each is of one topic partition."""
    ends: dict[int, int] = field(default_factory=dict)
    now: int = NOW
    number: int = 0

    @property
    def expected(self) -> dict[Place, Record]:
        return _places(self.segments)

    def seen(self) -> dict[Place, Record]:
        """The records that readers see; seeing an offset twice fails the trial."""
        rows = self.lake.table(self.table).scan().to_arrow().to_pylist()
        found = {(row["partition"], row["offset"]): record_of(row) for row in rows}
        if len(found) != len(rows):
            raise AssertionError(f"{self.table}: {len(rows) - len(found)} offsets are seen twice")
        return found


def trial(seed: int, lake: Lake, folder: Path) -> Trial:
    """Everything that the seed says, in a table of its own."""
    random = Random(seed)  # noqa: S311  # a seed is what it is for
    stand = Stand(random, lake, f"steps.s{seed}", folder / str(seed))
    stand.folder.mkdir(parents=True)
    records.create(lake, stand.table, PROPERTIES)
    found = Trial(seed)
    for _ in range(STEPS):
        stand.now += random.choice([0, 1, DAY, -DAY, 3 * DAY])
        random.choice([_land, _land, _retain, _collect])(stand, found)
        found.violations += unbalanced(lake.table(stand.table))
    _collect_all(stand, found)
    found.counts["records"] = sum(stand.ends.values())
    found.counts["commits"] = len(lake.table(stand.table).metadata.snapshots)
    return found


def _land(stand: Stand, found: Trial) -> None:
    """Land a file. If it was not, land it again: whoever is told so does that."""
    segments = _draw(stand)
    path = stand.folder / f"{stand.number}.parquet"
    pq.write_table(kafka_rows([record for one in segments for record in one], "orders"), path)
    before, files = stand.expected, _files(stand)
    ended = _disturbed(stand, found, lambda lake: land(lake, stand.table, [path]))
    seen = stand.seen()
    whole = before | _places(segments)
    told = (ended.refused or "").partition(":")[0]
    allowed = {"": [whole], UnavailableError.__name__: [before], OutcomeUnknownError.__name__: [before, whole]}
    if seen not in ([before, whole] if ended.killed else allowed.get(told, [])):
        found.violations.append(f"landing ended with {ended}: {len(seen)} records of {len(before)} or {len(whole)}")
    if told == UnavailableError.__name__ and _files(stand) - files:
        found.violations.append(f"landing said that nothing was landed, and left {_files(stand) - files}")
    stand.segments += segments
    if seen == before:
        land(stand.lake, stand.table, [path])


def _retain(stand: Stand, found: Trial) -> None:
    """Drop what is past its retention; a run without a fault after it drops what is left of that."""
    due = _due(stand)
    left = [one for one in stand.segments if one not in due]

    def retain(lake: Lake) -> None:
        done = retain_plans(lake, plan_table(lake, stand.table, Lane.RETAIN, stand.now))
        for error in done.failures.values():
            raise error

    ended = _disturbed(stand, found, retain)
    possible = [_places(left)] if _went_well(ended) else [stand.expected, *_by_partition(stand, due)]
    if stand.seen() not in possible:
        found.violations.append(f"C19: {len(stand.seen())} records are left, of {len(stand.expected)}: {ended}")
    retain(stand.lake)
    if stand.seen() != _places(left):
        found.violations.append(f"C19: {len(stand.seen())} records are left instead of {len(_places(left))}")
    stand.segments = left


def _collect(stand: Stand, found: Trial) -> None:
    """Collect by a clock for which all that lies there is old."""
    _leave_behind(stand)
    later_ms = clock.now_ms() + 30 * DAY
    _disturbed(stand, found, lambda lake: maintain_table(lake, stand.table, later_ms, remove=True))
    _all_can_be_read(stand, found)


def _collect_all(stand: Stand, found: Trial) -> None:
    """The next collection, without a fault, leaves nothing of what nobody holds."""
    maintain_table(stand.lake, stand.table, clock.now_ms() + 30 * DAY, remove=True)
    left = [path for path in _files(stand) if job_of(path) is not None]
    if left:
        found.violations.append(f"C25: {left} is left")
    _all_can_be_read(stand, found)


def _all_can_be_read(stand: Stand, found: Trial) -> None:
    """Now and by time travel."""
    if stand.seen() != stand.expected:
        found.violations.append("collecting has changed what readers see")
    there = {str(on_disk(path)) for path in held(stand.lake.table(stand.table))}
    if there - _files(stand):
        found.violations.append(f"collecting has taken {there - _files(stand)}, which a snapshot holds")


def _disturbed(stand: Stand, found: Trial, work: Callable[[Lake], object]) -> Ended:
    """Do ``work`` in a process of its own, three times in four with a fault."""
    stand.number += 1
    folder = stand.folder / f"step-{stand.number}"
    folder.mkdir()
    fault = _draw_fault(stand.random)
    lake = faulty(stand.lake, fault, folder) if stand.random.random() < 0.75 else stand.lake
    ended = Child.start(partial(_account, work, lake)).end()
    if (folder / FIRED).exists():
        found.faults.append((folder / FIRED).read_text())
    if ended.crashed:
        found.violations.append(f"C26: {ended.crashed}")
    if ended.refused and "\n" in ended.refused:
        found.violations.append(f"C26: more than a line: {ended.refused}")
    if ended.killed and fault.kind not in (Kind.KILL, Kind.TORN):
        found.violations.append("the process died of something else")
    return ended


def _account(work: Callable[[Lake], object], lake: Lake) -> dict[str, Any]:
    faulty_files.install(lake.properties)
    try:
        work(lake)
    except FirnError as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    return {}


def _went_well(ended: Ended) -> bool:
    return not (ended.killed or ended.refused or ended.crashed)


def _draw_fault(random: Random) -> Fault:
    kind = random.choice(_KINDS)
    after = kind is Kind.KILL and random.random() < 0.5
    return Fault(kind, random.choice(_calls(kind)), random.choice([1, 1, 1, 2, 3]), after, random.choice([1, 2, 5]))


def _calls(kind: Kind) -> Sequence[str]:
    """Those that can fail like that."""
    match kind:
        case Kind.LOST_ANSWER | Kind.CONFLICT:
            return [_COMMIT]
        case Kind.LOST_REQUEST | Kind.DOWN | Kind.BUSY:
            return [call for call in _CALLS if call in CATALOG]
        case Kind.FULL | Kind.TORN:
            return [call for call in _CALLS if call.startswith("write")]
        case Kind.BROKEN_STORE:
            return [call for call in _CALLS if call not in CATALOG]
        case _:
            return _CALLS


def _draw(stand: Stand) -> list[list[Record]]:
    """Segments of a file: one per topic partition, as old as the clock or a few days older."""
    random = stand.random
    found = []
    for partition in sorted(random.sample([0, 1, 2], random.randint(1, 3))):
        start = stand.ends.get(partition, 0)
        stand.ends[partition] = start + random.randint(1, 4)
        at = stand.now - random.choice([0, DAY, 4 * DAY, 8 * DAY])
        found.append(
            [
                Record(offset, random.choice([b"a", b"b", None]), random.choice([b"v", None]), partition, at)
                for offset in range(start, stand.ends[partition])
            ]
        )
    return found


def _due(stand: Stand) -> list[list[Record]]:
    """By Kafka's rule: of each topic partition the first segments that are all too old, never the last one."""
    due = []
    for partition in stand.ends:
        own = [one for one in stand.segments if one[0].partition == partition]
        for segment in own[:-1]:
            if stand.now - max(record.timestamp_ms for record in segment) <= RETENTION_MS:
                break
            due.append(segment)
    return due


def _by_partition(stand: Stand, due: Collection[list[Record]]) -> list[dict[Place, Record]]:
    """The expected rest when only some topic partitions were done."""
    found = []
    for chosen in range(1 << len(stand.ends)):
        partitions = {partition for number, partition in enumerate(stand.ends) if chosen >> number & 1}
        found.append(_places([one for one in stand.segments if one not in due or one[0].partition not in partitions]))
    return found


def _leave_behind(stand: Stand) -> None:
    """Remains of a killed writer."""
    folder = on_disk(job_folder(stand.lake.table(stand.table), f"{stand.number:016x}"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stray.parquet").write_bytes(b"PAR1")


def _files(stand: Stand) -> set[str]:
    return {str(path) for path in (_root(stand) / "data").rglob("*.parquet")}


def _root(stand: Stand) -> Path:
    return on_disk(stand.lake.table(stand.table).location())


def _places(segments: Collection[list[Record]]) -> dict[Place, Record]:
    return {(record.partition, record.offset): record for segment in segments for record in segment}
