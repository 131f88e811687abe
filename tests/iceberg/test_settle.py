"""What became of a commit is read from the table, whatever the catalog has answered (C22, C25)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    ServerError,
    ServiceUnavailableError,
)
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.refs import MAIN_BRANCH
from sqlalchemy.exc import OperationalError

from firnlake.errors import ConflictError, OutcomeUnknownError
from firnlake.iceberg import commit
from firnlake.iceberg.branches import firn_properties
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange, Commit, CommitRequest, SnapshotIds
from firnlake.iceberg.commit import LOOKS, PATIENCE_SECONDS, REFUSALS, Settled, commit_changes, settle
from firnlake.job.garbage import newer_snapshot
from firnlake.table import records
from firnlake.table.history import FENCE
from tests.support.faults import Nth, Watch, different, late, watched
from tests.support.lakes import TABLE, append, audit, heads, row

ANSWERS = [
    CommitFailedException("branch main has changed"),
    CommitStateUnknownException("504: gateway timeout"),
    ServiceUnavailableError("503: try again"),
    ServerError("500: internal error"),
    BadRequestError("400: bad request"),
    ForbiddenError("403: forbidden"),
    ValueError("sequence number is taken"),
    ConnectionError("the connection broke"),
    OperationalError("COMMIT", None, Exception("the connection broke"), connection_invalidated=True),
]
REFUSAL = (BadRequestError, ForbiddenError, ValueError)


@dataclass
class Clock:
    """A time that passes when somebody waits."""

    seconds: float = 0.0
    pauses: list[float] = field(default_factory=list)

    def pass_by(self, seconds: float) -> None:
        self.seconds += seconds
        self.pauses.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which commits wait."""
    clock = Clock()
    monkeypatch.setattr(commit, "monotonic", lambda: clock.seconds)
    monkeypatch.setattr(commit, "sleep", clock.pass_by)
    return clock


@pytest.fixture
def landed(lake: Lake, table: str) -> Lake:
    assert table
    append(lake, [row(0)])
    return lake


def always(call: str, error: Exception) -> Watch:
    """At each ``call``, ``error`` is what the catalog answers."""

    def answer(now: str) -> None:
        if now == call:
            raise error

    return answer


def empty(lake: Lake, check: Callable[[Table], object] = lambda _: None) -> Settled:
    """Add an empty snapshot, after ``check`` of each load."""
    prepared = Commit(lake.table(TABLE))

    def request(table: Table) -> CommitRequest:
        check(table)
        return prepared.request(table)

    return settle(lake, TABLE, request)


def count(lake: Lake) -> int:
    return len(lake.table(TABLE).metadata.snapshots)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
@pytest.mark.parametrize("moment", ["before commit", "after commit", "after commit and that of another"])
def test_c25_no_error_tells_whether_a_commit_was_applied(
    landed: Lake, clock: Clock, moment: str, answer: Exception
) -> None:
    others = moment.endswith("another")

    def meanwhile() -> None:
        if others:
            append(landed, [row(1)])
        raise answer

    before = count(landed)
    settled = empty(watched(landed, Nth(1, meanwhile, only=moment.removesuffix(" and that of another"))))
    assert settled.tries == (2 if moment == "before commit" else 1)
    assert count(landed) == before + 1 + others
    assert settled.snapshot_id in {one.snapshot_id for one in landed.table(TABLE).metadata.snapshots}


@pytest.mark.parametrize("aside", [True, False])
def test_c22_a_lost_race_is_won_at_once_with_the_same_id(landed: Lake, clock: Clock, aside: bool) -> None:
    """Also if the winner took the sequence number for a branch of its own, where main stays as it was."""
    race = Nth(1, lambda: audit(landed) if aside else append(landed, [row(1)]), only="before commit")
    own = watched(landed, race)
    ids = SnapshotIds()
    settled = settle(own, TABLE, Commit(own.table(TABLE), ids=ids).request)
    assert (settled.snapshot_id, settled.tries) == (ids[MAIN_BRANCH, 0], 2)
    assert clock.seconds < 1


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_c25_c26_a_refusal_is_tried_three_times_and_what_may_pass_is_waited_for(
    landed: Lake, clock: Clock, answer: Exception
) -> None:
    refused = isinstance(answer, REFUSAL)
    before = heads(landed)
    tries = REFUSALS if refused else r"\d+"
    said = rf"table {TABLE}: .*: .*unknown \(tries: {tries}\)"
    with pytest.raises(OutcomeUnknownError, match=said) as caught:
        empty(watched(landed, always("before commit", answer)))
    assert heads(landed) == before
    assert (clock.seconds < 5) if refused else (PATIENCE_SECONDS <= clock.seconds < PATIENCE_SECONDS + 20)
    assert len(clock.pauses) < 200, "pauses grow"
    assert str(answer).splitlines()[0].removeprefix("(builtins.Exception) ") in str(caught.value)


def test_c25_a_request_that_arrives_late_is_not_applied_a_second_time(landed: Lake, clock: Clock) -> None:
    before = count(landed)
    slow, catalog = late(landed, "records", "no")
    settled = empty(slow)
    assert settled.tries == 2
    assert catalog.under_way
    with pytest.raises(CommitFailedException):
        catalog.under_way()
    assert count(landed) == before + 1


def test_c25_a_request_that_arrives_before_the_second_is_the_commit(landed: Lake, clock: Clock) -> None:
    before = count(landed)
    slow, catalog = late(landed, "records", "no")
    loads: list[Table] = []

    def changes(table: Table) -> Mapping[str, BranchChange]:
        loads.append(table)
        if len(loads) > 1 and catalog.under_way:
            catalog.under_way()
        return {MAIN_BRANCH: BranchChange()}

    commit_changes(slow, TABLE, changes)
    assert count(landed) == before + 1


class OddCatalog(SqlCatalog):
    """Applies the first request, and nobody hears of it; the next loads are as ``shown`` makes of what is there."""

    shown: Callable[[Table], Table] = staticmethod(lambda table: table)
    looks = 0
    forgot = committing = False

    def load_table(self, identifier: Any) -> Table:
        table = super().load_table(identifier)
        if self.committing or not self.forgot or not self.looks:
            return table
        self.looks -= 1
        return self.shown(table)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        self.committing = True
        try:
            response = super().commit_table(table, requirements, updates)
        finally:
            self.committing = False
        if not self.forgot:
            self.forgot = True
            raise ConnectionError("the connection broke")
        return response


def odd(lake: Lake, shown: Callable[[Table], Table], looks: int) -> Lake:
    """``lake`` through such a catalog."""
    own = {key: value for key, value in lake.properties.items() if key != "type"}
    found = Lake(lake.name, own | {"py-catalog-impl": f"{__name__}.{OddCatalog.__name__}"}, lake.home)
    catalog = found.catalog
    assert isinstance(catalog, OddCatalog)
    catalog.shown, catalog.looks = shown, looks
    return found


def as_of(location: str) -> Callable[[Table], Table]:
    """The table as it was in the metadata file at ``location``."""

    def past(table: Table) -> Table:
        metadata = FromInputFile.table_metadata(table.io.new_input(location))
        return Table(table.name(), metadata, location, table.io, table.catalog)

    return past


def down(_: Table) -> Table:
    raise ConnectionError("the catalog is down")


def only_heads_after_others(lake: Lake) -> Callable[[Table], Table]:
    """Another writer commits, and the load tells the heads alone."""

    def shown(_: Table) -> Table:
        append(lake, [row(1)])
        table = lake.table(TABLE)
        return Table(
            table.name(), different(table.metadata, "snapshots"), table.metadata_location, table.io, table.catalog
        )

    return shown


def before_the_last_append(lake: Lake) -> Callable[[Table], Table]:
    """The table as it was before what the commit is made on: its main is another, and its number is lower."""
    return as_of(lake.table(TABLE).metadata.metadata_log[-1].metadata_file)


SHOWN = {"the past": before_the_last_append, "nothing": lambda _: down, "heads": only_heads_after_others}


@pytest.mark.parametrize("name", SHOWN)
def test_c25_a_load_that_tells_nothing_is_followed_by_another(landed: Lake, clock: Clock, name: str) -> None:
    settled = empty(odd(landed, SHOWN[name](landed), looks=LOOKS - 1))
    assert settled.tries == 1
    assert settled.snapshot_id in {one.snapshot_id for one in landed.table(TABLE).metadata.snapshots}


@pytest.mark.parametrize("name", SHOWN)
def test_c25_without_a_load_that_tells_the_outcome_is_unknown(landed: Lake, clock: Clock, name: str) -> None:
    before = count(landed)
    with pytest.raises(OutcomeUnknownError, match=r"the connection broke: .* look whether snapshot \d+ is in its"):
        empty(odd(landed, SHOWN[name](landed), looks=100))
    assert clock.seconds < 10
    assert count(landed) - before == (1 + LOOKS if name == "heads" else 1)


def gone_at_the_second_look() -> Callable[[Table], None]:
    """A check of what a commit is made on, which fails from the second load on."""
    calls = iter([None, ConflictError("an input is gone")])

    def check(_: Table) -> None:
        if problem := next(calls):
            raise problem

    return check


def test_c25_what_no_longer_fits_is_no_conflict_while_the_request_may_still_arrive(landed: Lake, clock: Clock) -> None:
    slow, catalog = late(landed, "records", "no")
    with pytest.raises(OutcomeUnknownError, match=r"the connection broke: .*an input is gone"):
        empty(slow, gone_at_the_second_look())
    assert catalog.under_way
    catalog.under_way()


def roll_back(lake: Lake) -> None:
    """Main is set to its parent, which takes no sequence number."""
    table = lake.table(TABLE)
    current = table.current_snapshot()
    assert current
    table.manage_snapshots().set_current_snapshot(current.parent_snapshot_id).commit()


@pytest.mark.parametrize("back", [False, True])
def test_c22_what_no_longer_fits_after_a_lost_race_is_a_conflict(landed: Lake, clock: Clock, back: bool) -> None:
    race = Nth(1, lambda: roll_back(landed) if back else append(landed, [row(1)]), only="before commit")
    with pytest.raises(ConflictError, match="an input is gone"):
        empty(watched(landed, race), gone_at_the_second_look())


def test_c22_a_table_that_is_made_again_meanwhile_is_another_one(landed: Lake, clock: Clock) -> None:
    def again() -> None:
        landed.catalog.drop_table(TABLE)
        records.create(landed, TABLE, {})

    with pytest.raises(ConflictError, match="was dropped, and another table now has its name"):
        empty(watched(landed, Nth(1, again, only="before commit")))


def test_c25_a_newer_snapshot_is_one_that_was_made_after_it_was_asked_for(landed: Lake, clock: Clock) -> None:
    """Whoever is faster may have begun before: a load that tells the past does not show it."""
    newer_snapshot(watched(landed, Nth(1, lambda: append(landed, [row(1)]), only="before commit")), TABLE)
    newest = landed.table(TABLE).current_snapshot()
    assert newest
    assert FENCE in firn_properties(newest)
