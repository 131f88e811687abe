"""Publishing and discarding exclude each other, though neither holds a lock.

Each first writes its claim on the stage and then looks for claims of the other kind. The catalog orders the two writes,
so at least one of the two sees the other and steps back; files that a commit may be about to use are never deleted.
"""

import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum

from pipeline import clock
from pipeline.errors import (
    ConflictError,
    FirnError,
    MetadataLostError,
    OutcomeUnknownError,
    RefusedError,
    UnavailableError,
)
from pipeline.lake import Lake
from pipeline.stage.stage import Stage

_CLOCK = re.compile("[0-9]{1,18}")

LEASE_MS = 10 * 60_000
"""How long a claim is believed, in milliseconds: far longer than any commit takes. After that its holder is dead."""


class Claim(StrEnum):
    """What a process is about to do to a stage; the value begins the name of the table property that says so."""

    PUBLISH = "firn-publishing"
    DISCARD = "firn-discarding"


@contextmanager
def claimed(
    lake: Lake,
    identifier: str,
    intent: Claim,
    *,
    outlived: bool = False,
    load: Callable[[Lake, str], Stage] = Stage.load,
) -> Iterator[Stage]:
    """Hold a claim on the stage, which is yielded as ``load`` finds it now: nobody of the other kind touches it any
    more.

    ConflictError when a live process claims the opposite. The claim is withdrawn when the work is refused or the stage
    has ``outlived`` it, stays when nobody knows how the work ended or what is still under way, and goes with the stage
    otherwise.
    """
    # A name of its own for every claimant: withdrawing one's claim must not withdraw another's.
    own = f"{intent.value}.{uuid.uuid4().hex}"
    _change(lake, identifier, own, str(clock.now_ms()))
    try:
        stage = load(lake, identifier)
        _step_back(stage, Claim.DISCARD if intent is Claim.PUBLISH else Claim.PUBLISH)
        yield stage
    except (OutcomeUnknownError, UnavailableError):
        # A request may be under way: who discards the stage has to know (``fence``).
        raise
    except FirnError:
        if lake.when_free(lambda: lake.catalog.table_exists(identifier)):
            _change(lake, identifier, own, None)
        raise
    if outlived:
        _change(lake, identifier, own, None)


def claims(properties: Mapping[str, str], intent: Claim) -> dict[str, str]:
    """The claims of that kind among the ``properties`` of a stage: since when, by name."""
    return {name: since for name, since in properties.items() if name.startswith(intent.value)}


def _step_back(stage: Stage, opposite: Claim) -> None:
    now = clock.now_ms()
    for name, since in claims(stage.table.properties, opposite).items():
        if not _CLOCK.fullmatch(since):
            raise RefusedError(
                f"stage {stage.identifier}: property {name} is {since[:40]!r}; allowed: epoch milliseconds"
            )
        if now - int(since) < LEASE_MS:
            raise ConflictError(
                f"stage {stage.identifier}: another process claimed it ({opposite.value}) {now - int(since)} ms ago; "
                f"allowed: after it is done, or {LEASE_MS} ms later"
            )


def _change(lake: Lake, identifier: str, name: str, value: str | None) -> None:
    def commit() -> None:
        with lake.table(identifier).transaction() as transaction:
            if value is None:
                transaction.remove_properties(name)
            else:
                transaction.set_properties({name: value})

    try:
        lake.until_committed(commit)
    except FileNotFoundError as error:
        # Another process is done with the stage, and deletes its metadata between our look and our commit.
        raise MetadataLostError(identifier, f"stage {identifier}: its metadata file is gone: {error}") from error
