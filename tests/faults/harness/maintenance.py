"""Trials of maintenance: many change the table, maintenance is disturbed, and every kept snapshot is read afterwards.

In process and in forked children, without a JVM. Nothing waits: time passes by setting back what the table and the
store say of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from firnlake import clock
from firnlake.errors import FirnError
from firnlake.iceberg.catalog import Lake
from firnlake.job.plan import stage_parts
from firnlake.job.stage import stages_of
from firnlake.maintain.maintain import maintain_table
from firnlake.table import records
from infra.foreign.files import on_disk
from tests.faults.harness import faulty_files
from tests.faults.harness.child import Child
from tests.faults.harness.fault import CATALOG, Fault, Kind
from tests.faults.harness.faulty import faulty
from tests.faults.harness.hands import DAY, HOUR, Hands, Staged
from tests.faults.harness.injector import FIRED
from tests.faults.harness.kept import Seen, expired_refs, retained
from tests.faults.harness.trial import Trial
from tests.support.watched import Nth, watched

ROUNDS: Final = 2
ORPHANS_AGE: Final = 3 * DAY
STAGE_AGE: Final = DAY
_SKEWS: Final = (-HOUR, 0, 0, HOUR)
_CALLS: Final = (
    *("load_table", "commit_table", "commit_table", "open metadata", "open list", "open manifest", "write manifest"),
    *("write list", "delete data", "delete data", "delete manifest", "delete manifest", "delete list", "delete other"),
)
_KINDS: Final = (Kind.KILL, Kind.KILL, Kind.KILL, Kind.BROKEN_STORE, Kind.LOST_ANSWER, Kind.CONFLICT, Kind.DOWN)
_MOMENTS: Final = ("before load", "before commit", "before swap", "after commit")


@dataclass
class Stand:
    """The tools of one trial."""

    random: Random
    hands: Hands
    folder: Path
    found: Trial

    def happened(self, what: str) -> None:
        self.hands.log.append(what)

    def broken(self, rule: str) -> None:
        self.found.violations.append(f"{rule} ({', '.join(self.hands.log)})")


def trial(seed: int, lake: Lake, folder: Path) -> Trial:
    """Everything that the seed says, in a table of its own."""
    random = Random(seed)  # noqa: S311  # a seed is what it is for
    stand = Stand(random, Hands(random, lake, f"maintenance.s{seed}"), folder / str(seed), Trial(seed))
    stand.folder.mkdir(parents=True)
    age_ms = random.choice([4 * HOUR, DAY, 5 * DAY])
    records.create(lake, stand.hands.name, _properties(random, age_ms))
    stand.hands.known()
    random.choice([stand.hands.land, stand.hands.catch_up])()
    for _ in range(ROUNDS):
        for _ in range(random.randint(2, 4)):
            stand.hands.act()
        stand.hands.wait(random.choice([0, HOUR, DAY, age_ms - 2 * HOUR, age_ms + 2 * HOUR]))
        _disturbed(stand)
        if stand.found.violations:
            return stand.found
    stand.hands.wait(5 * DAY)
    _undisturbed(stand)
    stand.found.counts["snapshots"] = len(stand.hands.contents)
    summaries = [one.summary for one in stand.hands.table.metadata.snapshots if one.summary]
    stand.found.counts["manifests rewritten"] = sum(one["manifests-created"] is not None for one in summaries)
    stand.found.counts["kept"] = len(stand.hands.table.metadata.snapshots)
    return stand.found


def _properties(random: Random, age_ms: int) -> dict[str, str]:
    return {
        "firn.active.segments": "0",
        "firn.maintenance": "manifests,orphans,snapshots",
        "firn.job.max.age.ms": str(STAGE_AGE),
        "history.expire.max-snapshot-age-ms": str(age_ms),
        "history.expire.min-snapshots-to-keep": str(random.choice([1, 1, 3])),
        "history.expire.max-ref-age-ms": str(random.choice([7 * DAY, 2**63 - 1])),
        "commit.manifest.min-count-to-merge": random.choice(["1", "1", "100"]),
        "commit.manifest-merge.enabled": "false",
        "write.metadata.previous-versions-max": random.choice(["1", "3", "100"]),
    }


def _disturbed(stand: Stand) -> None:
    """Maintenance while something goes wrong or somebody gets in between; then what must hold whatever happened."""
    before, staged = Seen.of(stand.hands.table), _in_flight(stand)
    now_ms = clock.now_ms() + stand.random.choice(_SKEWS)
    stand.random.choice([_with_fault, _with_fault, _with_intruder])(stand, now_ms)
    _check(stand, before, staged, now_ms)


def _undisturbed(stand: Stand) -> None:
    """Nothing gets in the way: everything goes that must go, and the next time there is nothing to do."""
    before, staged = Seen.of(stand.hands.table), _in_flight(stand)
    now_ms = clock.now_ms() + stand.random.choice(_SKEWS)
    shown = maintain_table(stand.hands.lake, stand.hands.name, now_ms, remove=False)
    if Seen.of(stand.hands.table).reachable != before.reachable:
        stand.broken("a dry run has changed the table")
    done = maintain_table(stand.hands.lake, stand.hands.name, now_ms, remove=True)
    after = _check(stand, before, staged, now_ms)
    names = {(one.kind, one.name) for one in done}
    if lost := [str(one) for one in shown if one.goes and (one.kind, one.name) not in names]:
        stand.broken(f"shown, and not done: {lost}, but {[str(one) for one in done]}")
    metadata = after.table.metadata
    left = {one.snapshot_id for one in metadata.snapshots}
    if too_many := left - retained(metadata.snapshots, metadata.refs, now_ms, metadata.properties):
        stand.broken(f"{len(too_many)} of {len(left)} snapshots are past their age")
    if refs := expired_refs(metadata, now_ms):
        stand.broken(f"{refs} are past their age")
    only_past = before.reachable - after.reachable
    if remain := {path for path in only_past if path.exists() and path.suffix != ".json"}:
        stand.broken(f"only expired snapshots reached {_some(remain)}")
    jobs = {stage_parts(name)[1] for name in stages_of(stand.hands.lake, stand.hands.name)}
    old = {path for path in after.unreachable if now_ms - path.stat().st_mtime * 1000 > ORPHANS_AGE}
    # Its own commits may push these out of the log: they are not orphans before the next run.
    former = {path for path in only_past if path.suffix == ".json"}
    if remain := {path for path in old - former if jobs.isdisjoint(path.parts)}:
        stand.broken(f"nothing reaches {_some(remain)}")
    for path in former & old:
        path.unlink()
    again = maintain_table(stand.hands.lake, stand.hands.name, now_ms, remove=True)
    if more := [str(one) for one in again if one.goes]:
        stand.broken(f"a second run finds {more}")


def _check(stand: Stand, before: Seen, staged: list[Staged], now_ms: int) -> Seen:
    """Everything that is kept can be read and shows what it did; nothing went that had to stay."""
    stand.hands.known()
    after = Seen.of(stand.hands.table)
    if after.lost:
        stand.broken(f"C29: lost {_some(after.lost)}")
    for snapshot_id, shown in after.contents.items():
        if shown != stand.hands.contents[snapshot_id]:
            expected = sorted(stand.hands.contents[snapshot_id])
            stand.broken(f"C29: snapshot {snapshot_id} shows {sorted(shown)} instead of {expected}")
    metadata, was = after.table.metadata, before.table.metadata
    # Another process may have maintained the table by a clock that is right.
    latest_ms = max(now_ms, clock.now_ms())
    both = {one.snapshot_id: one for one in (*was.snapshots, *metadata.snapshots)}
    if early := retained(both.values(), metadata.refs, latest_ms, metadata.properties) - {*after.files}:
        stand.broken(f"C29: {len(early)} snapshots went too early")
    if gone := was.refs.keys() - metadata.refs.keys() - expired_refs(was, latest_ms):
        stand.broken(f"C29: {sorted(gone)} went too early")
    live = after.files.get(metadata.current_snapshot_id or 0, set())
    for stage in staged:
        lives = {on_disk(path) for path in stage.inputs} <= live
        if lives and (missing := {path for path in stage.files if not path.exists()}):
            stand.broken(f"C29: staged result {stage.name} lost {_some(missing)}")
    young = {path for path, age in stand.hands.strays.items() if age <= ORPHANS_AGE - 2 * HOUR and not path.exists()}
    if young:
        stand.broken(f"C29: {_some(young)} may be about to be committed")
    stand.hands.strays = {path: age for path, age in stand.hands.strays.items() if path.exists()}
    return after


def _in_flight(stand: Stand) -> list[Staged]:
    """Results that may still be published: not too old, all inputs live, and complete."""
    there = stages_of(stand.hands.lake, stand.hands.name)
    return [one for one in stand.hands.staged if one.name in there and one.age_ms + 2 * HOUR < STAGE_AGE]


def _with_fault(stand: Stand, now_ms: int) -> None:
    """Maintenance in a process of its own, of which a call fails, or which is killed there."""
    kind = stand.random.choice(_KINDS)
    calls = [call for call in _CALLS if _can(kind, call)]
    fault = Fault(kind, stand.random.choice(calls), stand.random.choice([1, 1, 2, 3, 5]), after=_after(stand, kind))
    folder = stand.folder / f"step-{len(stand.hands.log)}"
    folder.mkdir()
    ended = Child.start(partial(_maintained, faulty(stand.hands.lake, fault, folder), stand.hands.name, now_ms)).end()
    stand.happened(str(fault) if (folder / FIRED).exists() else "maintain")
    if (folder / FIRED).exists():
        stand.found.faults.append(str(fault))
    if ended.crashed:
        stand.broken(f"C26: {ended.crashed}")
    if ended.killed and kind is not Kind.KILL:
        stand.broken("C26: the process died of something else")


def _can(kind: Kind, call: str) -> bool:
    """True when ``call`` can fail like that."""
    match kind:
        case Kind.LOST_ANSWER | Kind.CONFLICT:
            return call == "commit_table"
        case Kind.DOWN:
            return call in CATALOG
        case Kind.BROKEN_STORE:
            return call not in CATALOG
        case _:
            return True


def _after(stand: Stand, kind: Kind) -> bool:
    return kind is Kind.KILL and stand.random.random() < 0.5


def _maintained(lake: Lake, name: str, now_ms: int) -> dict[str, Any]:
    faulty_files.install(lake.properties)
    try:
        maintain_table(lake, name, now_ms, remove=True)
    except FirnError as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    return {}


def _with_intruder(stand: Stand, now_ms: int) -> None:
    """Maintenance, while somebody does something at one of its calls."""
    who, moment, nth = stand.random.choice(_INTRUDERS), stand.random.choice(_MOMENTS), stand.random.choice([1, 1, 2, 3])

    def act() -> None:
        stand.hands.known()
        who(stand.hands)

    between = Nth(nth, act, only=moment)
    try:
        maintain_table(watched(stand.hands.lake, between), stand.hands.name, now_ms, remove=True)
    except FirnError as error:
        stand.happened(f"{type(error).__name__}")
    did = f"{who.__name__.strip('_')} at {moment} {nth}"
    stand.happened(did if between.acted else "maintain")
    if between.acted:
        stand.found.faults.append(did)


def _tag_newest(hands: Hands) -> None:
    """A tag on what main shows."""
    current = hands.table.metadata.current_snapshot_id
    assert current is not None
    hands.table.manage_snapshots().create_tag(current, f"tag-meanwhile-{hands.number}").commit()


def _maintain_as_well(hands: Hands) -> None:
    """Another process maintains the same table."""
    maintain_table(hands.lake, hands.name, clock.now_ms(), remove=True)


_INTRUDERS: Final[tuple[Callable[[Hands], None], ...]] = (
    *(Hands.land, Hands.drop, Hands.rewrite, Hands.rewrite_manifests, Hands.hide, Hands.roll_back, Hands.publish),
    *(Hands.stage, _tag_newest, _maintain_as_well, _maintain_as_well),
)


def _some(paths: set[Path]) -> str:
    """Number of the paths, and the name of one."""
    return f"{len(paths)} files, such as {min(paths)}"
