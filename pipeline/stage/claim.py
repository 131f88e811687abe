"""Publishing and discarding exclude each other, though neither holds a lock.

Each first writes its claim on the stage and then looks for the other's. The catalog orders the two writes, so at least
one of the two sees the other and steps back; files that a commit may be about to use are never deleted.
"""

from enum import StrEnum

from pipeline import clock
from pipeline.errors import ConflictError
from pipeline.lake import Lake
from pipeline.stage.stage import Stage

LEASE_MS = 10 * 60_000
"""How long a claim is believed, in milliseconds: far longer than any commit takes. After that its holder is dead."""


class Claim(StrEnum):
    """What a process is about to do to a stage; the value is the table property that says so."""

    PUBLISH = "firn-publishing"
    DISCARD = "firn-discarding"


def claim(lake: Lake, stage: Stage, intent: Claim) -> None:
    """Claim ``stage`` for ``intent``; ConflictError when a live process claims the opposite."""
    opposite = Claim.DISCARD if intent is Claim.PUBLISH else Claim.PUBLISH

    def write() -> None:
        with stage.table.transaction() as transaction:
            transaction.set_properties({intent.value: str(clock.now_ms())})

    def withdraw() -> None:
        with stage.table.transaction() as transaction:
            transaction.remove_properties(intent.value)

    lake.when_free(write)
    since = Stage.load(lake, stage.identifier).table.properties.get(opposite.value)
    if since is not None and clock.now_ms() - int(since) < LEASE_MS:
        lake.when_free(withdraw)
        raise ConflictError(
            f"stage {stage.identifier}: another process claimed it ({opposite.value}) {clock.now_ms() - int(since)} ms ago; "
            f"allowed: after it is done, or {LEASE_MS} ms later"
        )
