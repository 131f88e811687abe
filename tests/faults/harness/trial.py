"""One seed: records are landed, cleanings go wrong and are got in the way of, the next ones put everything right."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from firnlake import clock
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import data_folder
from firnlake.job.documents import documents_folder
from firnlake.job.lane import Lane
from firnlake.job.stage import stages_of
from firnlake.lanes.erasure.ask import ask
from firnlake.lanes.erasure.requests import erasures_of
from firnlake.maintain.maintain import maintain_table
from firnlake.table.published_plans import document_of, plans_folder
from infra.foreign.files import files_under, on_disk
from tests.faults.harness.child import ENDS_WITHIN, Child, Ended, clean, collect_late, sweep_late
from tests.faults.harness.fault import STANDING, Fault, Intruder, Kind
from tests.faults.harness.faulty import faulty
from tests.faults.harness.injector import FIRED, GO, PAUSED
from tests.faults.harness.model import Branches, Model, lost_files, unbalanced
from tests.faults.harness.reader import Reader
from tests.faults.harness.workplace import Workplace
from tests.support.lakes import held
from tests.support.row_deletes import delete_at, places
from tests.support.topics import DAY, NOW, Record, Topic, record_of
from tests.support.waiting import until

STEPS = 2
KEYS = (b"a", b"b", b"c", b"d", b"")
RUNS = ((tuple(Lane), False), ((Lane.MERGE, Lane.CLEAN), False), ((Lane.FULL,), True), ((Lane.FULL,), True))
"""Lanes of a cleaning, and whether thresholds count."""
ERASING = 0.5
"""Share of seeds in which keys are to be erased."""
LARGE = 0.5
"""Share of seeds in which every plan is surveyed by a task of its own, whose marks go to a file."""
FAR_AWAY = b"nobody has this key"
LATER = 3 * DAY
"""By a clock so far ahead everything that a dead process left is dead."""


@dataclass
class Trial:
    """The outcome of one seed."""

    seed: int
    faults: list[str] = field(default_factory=list)
    """Those that happened; a fault at a call that the run did not come to is none."""
    violations: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Messages of the cleanings that failed."""
    counts: Counter[str] = field(default_factory=Counter)


@dataclass
class Stand:
    """The setting of a trial."""

    seed: int
    random: Random
    place: Workplace
    topic: Topic
    reader: Reader
    folder: Path
    clean: Callable[..., dict[str, Any]]
    """A cleaning of the table."""
    model: Model = field(default_factory=Model)
    offsets: Counter[int] = field(default_factory=Counter)
    now: int = NOW
    run: Callable[[Lake], dict[str, Any]] = lambda _: {}
    """The cleaning that is under way, as another process would do it once more."""
    began: float = 0
    """When the cleaning that is under way was started, by the machine's clock in seconds."""
    requester: Random | None = None
    """Whoever requests that keys are erased; None in a trial without."""
    requests: set[str] = field(default_factory=set)
    """Ids of the requests that were made."""


def trial(seed: int, lake: Lake, place: Workplace, reader: Reader, folder: Path) -> Trial:
    """Everything that the seed says, in a table of its own."""
    random = Random(seed)  # noqa: S311  # a seed is what it is for
    place.prepare()
    topic = Topic(lake, place.engine(), f"faults.s{seed}", session=lambda: place.spark)
    # Of its own, so that a seed without requests stays what it was.
    requester = Random(f"requests {seed}")  # noqa: S311
    large = Random(f"large plans {seed}").random() < LARGE  # noqa: S311
    cleaning = partial(clean, table=topic.table, engine=place.engine, large=large)
    stand = Stand(seed, random, place, topic, reader, folder / str(seed), cleaning)
    stand.requester = requester if requester.random() < ERASING else None
    kept = random.choice(["0", "0", str(DAY)])
    stand.topic.create(delete_retention_ms=kept, maintenance="manifests,orphans,snapshots", erase_history="expire")
    found = Trial(seed)
    reader.watch(stand.topic.table)
    try:
        for number in range(STEPS):
            _land(stand, random.randint(2, 4))
            _delete_rows(stand, number)
            stand.now += random.choice([0, 1, DAY, -DAY, 3 * DAY])
            _request(stand)
            _disturbed(stand, found, Fault.draw(random), number)
            found.violations += _look(stand)
        _settle(stand, found)
    except FileNotFoundError as error:
        found.violations.append(f"a file of the table is gone: {error}")
    finally:
        looks, errors = reader.stop()
    found.violations += [*errors, *looks.violations(stand.model.deleted | stand.model.erasable())]
    found.counts["reads"] = looks.views
    found.counts["records"] = len(stand.model.landed)
    found.counts["erased"] = sum(
        read.records for one in erasures_of(lake.table(topic.table)) for read in one.reads.values()
    )
    found.counts["commits"] = len(stand.topic.lake.table(stand.topic.table).metadata.snapshots)
    return found


def _land(stand: Stand, batches: int) -> None:
    random = stand.random
    for _ in range(batches):
        batch = []
        for _ in range(random.randint(1, 5)):
            partition = random.randint(0, 1)
            key = None if random.random() < 0.08 else random.choice(KEYS)
            value = None if key is not None and random.random() < 0.25 else random.randbytes(3)
            batch.append(Record(stand.offsets[partition], key, value, partition))
            stand.offsets[partition] += 1
        if random.random() < 0.5:
            stand.topic.land(batch)
        else:
            stand.topic.append(batch)
        stand.model.land(batch)


def _request(stand: Stand) -> None:
    """Keys are to be erased at once, and a restarted writer lands records of them again that are gone already."""
    random, model = stand.requester, stand.model
    if random is None:
        return
    if random.random() < 0.7:
        keys = random.sample([*KEYS, FAR_AWAY], random.randint(1, 2))
        topic = stand.topic
        asked = ask(topic.lake, topic.table, [(key,) for key in keys], stand.now, topic.name, within_ms=1)
        stand.requests.add(asked.id)
        for key in keys:
            model.request(key, asked.log_ends)
    seen = branches(stand.topic)
    there = {(one.partition, one.offset) for one in (*seen.main, *seen.removed_tombstones)}
    gone = sorted(model.erasable() - there - model.deleted)
    if gone and random.random() < 0.5:
        again = [model.landed[place] for place in random.sample(gone, random.randint(1, len(gone)))]
        model.landed_again |= {(one.partition, one.offset) for one in again}
        stand.topic.append(sorted(again, key=lambda one: one.offset))


def _delete_rows(stand: Stand, number: int) -> None:
    """A user deletes a key row by row, as merge-on-read does; drawn apart from everything else that the seed says."""
    random = Random(f"{stand.seed} {number} row-level deletes")  # noqa: S311  # a seed is what it is for
    key = random.choice(KEYS)
    found = places(stand.topic.lake, stand.topic.table, [key], "key") if random.random() < 0.5 else {}
    if found:
        delete_at(stand.topic.lake, stand.topic.table, found, bounds=random.random() < 0.5)
        stand.model.delete(key)


def _disturbed(stand: Stand, found: Trial, fault: Fault, number: int) -> None:
    """A cleaning that the fault hits, if it comes to that call."""
    folder = stand.folder / str(number)
    folder.mkdir(parents=True)
    topic = stand.topic
    lake = faulty(topic.lake, fault, folder)
    lanes, force = stand.random.choice(RUNS)
    if stand.model.requested and stand.requester and stand.requester.random() < 0.5:
        lanes, force = (Lane.ERASE, *lanes), True
    stand.run = partial(stand.clean, now_ms=stand.now, lanes=lanes, force=force)
    stand.began = time.time()
    child = Child.start(partial(stand.run, lake))
    until((folder / PAUSED).exists, ENDS_WITHIN, alive=child.alive)
    standing = None
    if (folder / PAUSED).exists() and fault.intruder:
        if fault.intruder in STANDING:
            standing = _standing(stand, fault.intruder, folder / "standing")
        else:
            INTRUDERS[fault.intruder](stand, found)
        (folder / GO).touch()
    _take_down(found, child.end(), meant=fault.kind in (Kind.KILL, Kind.TORN))
    stand.place.settle()
    if standing:
        found.violations += _look(stand)
        (folder / "standing" / GO).touch()
        _take_down(found, standing.end())
    for fired in (folder / FIRED, folder / "standing" / FIRED):
        if fired.exists():
            found.faults.append(fired.read_text())


def _standing(stand: Stand, intruder: Intruder, folder: Path) -> Child:
    """A sweeper, or a collector, three days ahead: it has come to where it stands still, or to its end."""
    folder.mkdir()
    lake = faulty(stand.topic.lake, Fault.standing_still(stand.random), folder)
    work = sweep_late if intruder is Intruder.STANDING_SWEEPER else collect_late
    child = Child.start(partial(work, lake, stand.topic.table, LATER + DAY))
    until((folder / PAUSED).exists, ENDS_WITHIN, alive=child.alive)
    return child


def _take_down(found: Trial, ended: Ended, *, meant: bool = False) -> None:
    if ended.crashed:
        found.violations.append(f"C26: {ended.crashed}")
    if ended.killed and not meant:
        found.violations.append("the process died of something else")
    found.counts["publications"] += ended.publications
    found.counts["retries"] += ended.retries
    found.errors += (errors := [*ended.failures, *([ended.refused] if ended.refused else [])])
    found.counts.update(error.partition(":")[0] for error in errors)
    found.violations += [f"C26: more than a line: {error}" for error in errors if "\n" in error]


def _look(stand: Stand) -> list[str]:
    table = stand.topic.lake.table(stand.topic.table)
    return [*stand.model.violations(branches(stand.topic)), *unbalanced(table), *lost_files(table)]


def branches(topic: Topic) -> Branches:
    """The topic as readers of each branch see it."""
    every = (topic.rows(), topic.quarantined(), topic.removed_tombstones())
    return Branches(*([record_of(row) for row in rows] for rows in every))


def _settle(stand: Stand, found: Trial) -> None:
    """Runs without a fault, on a machine for whose clock what was left behind is old (C25)."""
    topic = stand.topic
    # After row-level deletes only a later cleaning knows where the log ends for readers, and what is erased (C4).
    runs = [((Lane.FULL,), True), ((Lane.FULL,), True), (tuple(Lane), False)]
    erase = ((Lane.ERASE,), True)
    for lanes, force in [erase, *runs[:2], erase, runs[2], erase] if stand.model.requested else runs:
        stand.now += 1
        work = partial(stand.clean, topic.lake, now_ms=stand.now, lanes=lanes, ahead_ms=LATER, force=force)
        ended = Child.start(work).end()
        _take_down(found, ended)
        if ended.failures or ended.refused:
            found.violations.append(f"C25: the next run fails: {ended}")
    found.violations += _look(stand)
    found.violations += stand.model.unsettled(branches(topic))
    found.violations += [f"C25: {name} is left" for name in stages_of(topic.lake, topic.table)]
    found.violations += [f"C25: {path} is left" for path in left_behind(topic)]
    maintain_table(topic.lake, topic.table, clock.now_ms() + LATER + DAY, remove=True)
    found.violations += _look(stand)
    found.violations += [f"C25: {path} is left by the collector" for path in lists_left(topic)]
    known = {one.request.id for one in erasures_of(topic.lake.table(topic.table))}
    found.violations += [f"C30: request {lost} is gone" for lost in stand.requests - known]


def left_behind(topic: Topic) -> Iterator[Path]:
    """Files that Firn wrote for jobs and no snapshot of any branch refers to: data, documents, manifests."""
    table = topic.lake.table(topic.table)
    known = {str(on_disk(path)) for path in held(table)}
    for folder in (data_folder(table), documents_folder(table)):
        yield from (path for path in files_under(on_disk(folder)) if str(path) not in known)


def lists_left(topic: Topic) -> Iterator[Path]:
    """Lists of the plans of commits that never came about."""
    table = topic.lake.table(topic.table)
    located = filter(None, map(document_of, table.metadata.snapshots))
    known = {location.rpartition("/")[2] for location in located}
    yield from (path for path in files_under(on_disk(plans_folder(table))) if path.name not in known)


def _append(stand: Stand, _: Trial) -> None:
    _land(stand, 2)


def _compact(stand: Stand, found: Trial) -> None:
    work = partial(stand.clean, stand.topic.lake, now_ms=stand.now, lanes=(Lane.FULL,), force=True)
    _take_down(found, Child.start(work).end())


def _sweep(stand: Stand, found: Trial) -> None:
    _take_down(found, Child.start(partial(sweep_late, stand.topic.lake, stand.topic.table, LATER)).end())


def _collect(stand: Stand, found: Trial) -> None:
    _take_down(found, Child.start(partial(collect_late, stand.topic.lake, stand.topic.table, LATER + DAY)).end())


def _sweep_and_try_again(stand: Stand, found: Trial) -> None:
    _sweep(stand, found)
    _take_down(found, Child.start(partial(stand.run, stand.topic.lake)).end())


def _call(procedure: str, stand: Stand, _: Trial) -> None:
    stand.topic.spark.sql(f"CALL lake.system.{procedure.format(table=stand.topic.table)}").collect()


def _expire(stand: Stand, found: Trial) -> None:
    _call("expire_snapshots(table => '{table}', older_than => timestamp '2999-01-01', retain_last => 1)", stand, found)


def _remove_orphans(stand: Stand, found: Trial) -> None:
    """Everything here is days old to the store, but for the table's metadata that the paused process has just written.

    No Iceberg writer survives the loss of that, and none takes days for a commit.
    """
    root = on_disk(stand.topic.lake.table(stand.topic.table).location())
    old = time.time() - 5 * DAY / 1000
    for path in root.rglob("*"):
        if path.parent != root / "metadata" or path.stat().st_mtime < stand.began:
            os.utime(path, (old, old))
    _call("remove_orphan_files(table => '{table}')", stand, found)


def _delete(stand: Stand, _: Trial) -> None:
    key = stand.random.choice(KEYS)
    mode = "merge-on-read" if stand.seed % 2 else "copy-on-write"
    stand.topic.spark.sql(f"ALTER TABLE lake.{stand.topic.table} SET TBLPROPERTIES ('write.delete.mode' = '{mode}')")
    stand.topic.spark.sql(f"DELETE FROM lake.{stand.topic.table} WHERE key = X'{key.hex()}'")  # noqa: S608  # our own
    stand.model.delete(key)


def _change_schema(stand: Stand, _: Trial) -> None:
    name = f"note_{stand.random.randint(0, 1 << 30)}"
    stand.topic.spark.sql(f"ALTER TABLE lake.{stand.topic.table} ADD COLUMN {name} string")


INTRUDERS: dict[Intruder, Callable[[Stand, Trial], None]] = {
    Intruder.APPENDER: _append,
    Intruder.COMPACTOR: _compact,
    Intruder.SWEEPER: _sweep,
    Intruder.COLLECTOR: _collect,
    Intruder.SECOND_TRY: _sweep_and_try_again,
    Intruder.REWRITE: partial(_call, "rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))"),
    Intruder.EXPIRE: _expire,
    Intruder.ORPHANS: _remove_orphans,
    Intruder.DELETE: _delete,
    Intruder.SCHEMA: _change_schema,
}
