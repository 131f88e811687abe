"""Whose snapshots may hold a data file of a table's: the table, the tables beside it, and its stages.

What is published goes from a stage to the tables and never back. Who asks for all of them asks in this order, so that
nothing is missed on its way.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Final

from pyiceberg.table import Table
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from pipeline.errors import RefusedError, UnavailableError
from pipeline.lake import Lake
from pipeline.plan.failure import stages_of
from pipeline.quarantine import quarantine
from pipeline.segments.held import Unheld
from pipeline.tombstones import tombstones

TRIES: Final = 5
FINDERS: Final = (quarantine.find, tombstones.find)
"""Each loads one of the tables beside a table; None while there is none."""


def tables_beside(lake: Lake, identifier: str) -> list[Table]:
    """The tables beside table ``identifier``."""
    return [table for find in FINDERS if (table := find(lake, identifier))]


def look_at_stages(lake: Lake, identifier: str, unheld: Unheld) -> None:
    """Take away from ``unheld`` what the stages of table ``identifier`` hold."""
    for name in stages_of(lake, identifier):
        # One that is gone meanwhile was discarded, or its files are the table's now; one that lacks metadata can't be
        # published, so what only it holds is of no use.
        with suppress(RefusedError, FileNotFoundError):
            unheld.look(lake.table(name))


def look_beside(lake: Lake, identifier: str, unheld: Unheld, expired: Collection[int] = ()) -> None:
    """Take away from ``unheld`` what quarantine and tombstones of table ``identifier`` hold.

    Snapshots whose ids are ``expired`` don't count. Raises UnavailableError when snapshots are
    expired all the time while they are read: then nobody knows what is held.
    """
    for find in FINDERS:
        _look(partial(find, lake, identifier), unheld, lambda _: expired)


def look_at_table(lake: Lake, identifier: str, unheld: Unheld, *, past: bool = True) -> None:
    """Take away from ``unheld`` what table ``identifier`` holds, with or without the snapshots of the ``past``.

    Raises UnavailableError as ``look_beside``.
    """
    _look(lambda: lake.table(identifier), unheld, _none if past else _past)


def _none(_: Table) -> Collection[int]:
    return ()


def _past(table: Table) -> Collection[int]:
    current = table.metadata.current_snapshot_id
    return [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id != current]


def _look(
    load: Callable[[], Table | None], unheld: Unheld, without: Callable[[Table], Collection[int]] = _none
) -> None:
    """Look at a table as it is now; again when another process expires snapshots, and their manifests, meanwhile."""

    def look() -> None:
        table = load()
        if table:
            unheld.look(table, without(table))

    Retrying(
        retry=retry_if_exception_type(FileNotFoundError), stop=stop_after_attempt(TRIES), retry_error_callback=_unknown
    )(look)


def _unknown(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    raise UnavailableError(
        f"what snapshots hold can't be told: {error}; allowed: all manifests of all snapshots there (is one being "
        "expired? try again later)"
    ) from error
