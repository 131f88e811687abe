"""Firn, as the trials use it: the only module of them that imports it, so that a rename touches one file.

Every step runs in this process with engine ``local``, by a clock that the trial sets, and says how it ended.
"""

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest.mock import patch

import pyarrow as pa

from firnlake import clock
from firnlake.compact import keys, tasks
from firnlake.engine.local import LocalEngine
from firnlake.errors import FirnError
from firnlake.iceberg import deleter
from firnlake.iceberg.catalog import Lake as Lake
from firnlake.ingest.land import land
from firnlake.inspect.status.gather import status_of
from firnlake.job.lane import Lane
from firnlake.lanes.erasure.ask import ask
from firnlake.maintain.maintain import maintain_table
from firnlake.run import run
from firnlake.table import records as tables
from firnlake.table.settings import change
from tests.nightly.trials.records import Record
from tests.support import records as kafka
from tests.support.faults import Killed
from tests.support.topics import foreign_rows

ALL_LANES: Final = tuple(Lane)
FULL: Final = (Lane.FULL,)
ERASE: Final = (Lane.ERASE,)
HEAD: Final = (Lane.MERGE, Lane.CLEAN)

TOPIC: Final = "orders"
_ENDS: Final = {1: "refused", 3: "conflict", 4: "unavailable", 5: "unknown"}


def landing(records: Iterable[Record]) -> pa.Table:
    """``records`` in the columns of a file to land."""
    return kafka.rows_of(
        kafka.Record(one.offset, one.key, one.value, one.partition, one.timestamp_ms, topic=TOPIC) for one in records
    )


def appending(records: Iterable[Record]) -> pa.Table:
    """``records`` in all columns of the table, as a writer appends them that knows nothing of Firn."""
    return foreign_rows(landing(records))


class _Machine:
    """The clock of the machine that Firn runs on, for what no argument tells."""

    now: Callable[[], int] = staticmethod(clock.now_ms)


_MACHINE: Final = _Machine()


@contextmanager
def one_by_one() -> Iterator[None]:
    """Within, Firn's machine shows the time of the trial, and deletes files one by one: a seed does it all again."""
    with patch.object(clock, "now_ms", lambda: _MACHINE.now()), patch.object(deleter, "WORKERS", 1):
        yield


@contextmanager
def large() -> Iterator[None]:
    """Within, every plan is too large for one task, and has too many keys for memory."""
    with patch.object(tasks, "WHOLE_BYTES", 0), patch.object(keys, "KEY_BYTES", 0):
        yield


@dataclass(frozen=True)
class Ended:
    """How a step ended.

    ``how``: done, refused, conflict, unavailable, unknown, crashed or killed.
    """

    how: str
    said: str = ""
    """The error's message; of a crash its class and last lines."""
    blocked: tuple[str, ...] = ()
    """What a run could not do, by topic partition and lane."""

    @property
    def acknowledged(self) -> bool:
        return self.how == "done"


class Product:
    """Firn on one catalog. Its clock is ``now``, which may be another than the world's."""

    def __init__(self, name: str, properties: dict[str, str], home: Path, now: Callable[[], int]) -> None:
        self.lake = Lake(name, properties, home)
        self._now = now
        self._engine = LocalEngine(1)
        _MACHINE.now = now

    @property
    def catalog(self) -> object:
        return self.lake.catalog

    def create(self, table: str, properties: dict[str, str]) -> None:
        tables.create(self.lake, table, properties)

    def land(self, table: str, path: Path) -> Ended:
        return self._ended(lambda: land(self.lake, table, [path]))

    def run(self, table: str, lanes: Sequence[Lane] = ALL_LANES, *, force: bool = False) -> Ended:
        blocked: list[str] = []

        def all_lanes() -> None:
            for lane in run(self.lake, table, self._now(), lambda _: self._engine, tuple(lanes), force):
                blocked.extend(f"{title}: {error}" for title, error in lane.failures.items())

        ended = self._ended(all_lanes)
        return Ended(ended.how, ended.said, tuple(blocked))

    def late(self, table: str, topic: str) -> Ended:
        """Take what seems to be a new topic as late data."""
        return self._ended(lambda: change(self.lake, table, topic, {"offsets.restart": "late"}))

    def maintain(self, table: str) -> Ended:
        blocked: list[str] = []

        def every_part() -> None:
            findings = maintain_table(self.lake, table, self._now(), remove=True)
            blocked.extend(f"{one.name}: {one.reason}" for one in findings if one.exit_code)

        ended = self._ended(every_part)
        return Ended(ended.how, ended.said, tuple(blocked))

    def ask(self, table: str, keys: Sequence[bytes], within_ms: int) -> Ended:
        """Request that keys are erased."""
        asked = [(key,) for key in keys]
        return self._ended(lambda: ask(self.lake, table, asked, self._now(), None, within_ms))

    def status(self, table: str) -> Ended:
        """The table's status; ``blocked`` lists what waits, as it says."""
        blocked: list[str] = []

        def gathered() -> None:
            found = status_of(self.lake, table, self._now())
            blocked.extend(found.details().strays)
            blocked.extend(
                f"{part.topic}-{part.partition}: {why}" for part in found.partitions for why in part.blockers
            )

        ended = self._ended(gathered)
        return Ended(ended.how, ended.said, tuple(blocked))

    def _ended(self, step: Callable[[], object]) -> Ended:
        try:
            step()
        except FirnError as error:
            return Ended(_ENDS[error.exit_code], str(error))
        except Killed:
            return Ended("killed")
        except Exception as error:  # noqa: BLE001  # whatever it is, the checker hears of it
            return Ended(
                "crashed", f"{type(error).__name__}: {error}\n{''.join(traceback.format_tb(error.__traceback__)[-3:])}"
            )
        return Ended("done")
