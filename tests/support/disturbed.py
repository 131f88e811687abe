"""What goes wrong while a command runs: others act in between, its process is killed, the store deletes nothing.

    meanwhile commit: land b=1    before the next command's first commit, records land
    meanwhile any 3: publish      before its third call of the catalog, another process publishes
    dies swap                     it is killed when the catalog has checked its commit, and not yet made it
    undeletable .avro             the store deletes no file with such a path while the next command runs
    machine 2d                    the machine's clock stands still, two days after the test began

A call is ``load``, ``commit``, ``swap`` or ``made`` of the catalog, ``any`` of these, or of the store ``delete``, or
``read`` of a data file.
"""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from firnlake import clock
from infra.environment import variable
from infra.foreign.files import files_under, on_disk
from tests.support.faults import Killed, Nth, Watched, die, properties_of, through
from tests.support.machine import machine_at
from tests.support.records import span
from tests.support.under_test import TableUnderTest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

DISTURBING: Final = ("meanwhile", "dies", "undeletable")
NEVER: Final = "it did not come to that"
_CALLS: Final = {
    "any": "catalog",
    "load": "before load",
    "commit": "before commit",
    "swap": "before swap",
    "made": "after commit",
    "delete": "delete ",
    "read": "read data file ",
}


class Telling(Watched):
    """Tells the calls of the catalog, and of the store the deletions and the reads of data files."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        super().__init__(lambda call: tell(f"catalog, {call}"))
        self._tell = tell

    def delete(self, path: str) -> bool:
        self._tell(f"delete {path}")
        return True

    def read(self, path: str) -> None:
        if path.endswith(".parquet"):
            self._tell(f"read data file {path}")


class Disturbed(TableUnderTest):
    """Commands that prepare what goes wrong while the next one runs."""

    _armed: Callable[[str], object] | None = None
    _said: Sequence[str] | None = None
    _acting = False
    _began: int | None = None

    def answer(self, line: str, text: Sequence[str] = ()) -> list[str]:
        """What ``line`` answers."""
        raise NotImplementedError

    def do_meanwhile(self, rest: str) -> Iterable[str]:
        call, _, command = rest.partition(": ")
        self._said = [NEVER]
        self._arm(call, lambda: self._act(command))
        return ()

    def do_dies(self, rest: str) -> Iterable[str]:
        self._arm(rest, die)
        return ()

    def do_undeletable(self, rest: str) -> Iterable[str]:
        def refuse(call: str) -> None:
            if call.startswith("delete ") and rest in call:
                raise OSError(f"{call.removeprefix('before delete ')}: try again later")

        self._armed = refuse
        return ()

    def do_machine(self, rest: str) -> Iterable[str]:
        """The machine's own clock, and that of the commands, from here on: so long after the first call."""
        self._began = self._began or clock.now_ms()
        self.now = self.machine = self._began + span(rest)
        return ()

    def do_written(self, _: str) -> Iterable[str]:
        """All files of the table, and of a lake of its own, were written now, also by what verdicts say."""
        for path in files_under(on_disk(self.loaded().location())) | files_under(self.folder):
            if path.name.startswith("verdicts-"):
                told = json.loads(path.read_text())
                told["files"] = {name: [size, self.now] for name, (size, _) in told["files"].items()}
                path.write_text(json.dumps(told))
            os.utime(path, ns=(self.now * 1_000_000, self.now * 1_000_000))
        return ()

    def do_spoil(self, rest: str) -> Iterable[str]:
        """Files of the table are `gone`, `torn` where a block ends, or `garbled`; `first`, `last` or `all` by age:
        ``spoil torn first metadata/*-m0.avro``."""
        how, which, pattern = rest.split()
        files = sorted(on_disk(self.loaded().location()).glob(pattern), key=lambda path: path.stat().st_mtime_ns)
        for path in {"first": files[:1], "last": files[-1:], "all": files}[which]:
            content = path.read_bytes()
            if how == "gone":
                path.unlink()
            elif how == "torn":
                path.write_bytes(
                    content[: content.index(content[-16:]) + 16] if path.suffix == ".avro" else content[:-1]
                )
            else:
                path.write_bytes(content[:-60] + bytes(60))
        return ()

    def _arm(self, words: str, act: Callable[[], object]) -> None:
        call, _, nth = words.partition(" ")
        self._armed = Nth(int(nth or 1), act, _CALLS[call])

    def _act(self, command: str) -> None:
        self._acting = True
        self._said = [line for one in command.split(" ; ") for line in self.answer(one) or ["done"]]
        self._acting = False

    def disturbed(self, act: Callable[[], Iterable[str]]) -> list[str]:
        """The answer of a command while what was prepared goes wrong; then, what the others had to say."""
        at_ms = self.machine
        with machine_at(at_ms) if at_ms else nullcontext():
            return self._disturbed(act)

    def _disturbed(self, act: Callable[[], Iterable[str]]) -> list[str]:
        if self._armed is None or self._acting:
            return list(act())
        armed, self._armed = self._armed, None
        own = self.opened

        def tell(call: str) -> None:
            if not self._acting:
                armed(call)

        gate = Telling(tell)
        told = {variable(own.lake.name, key): value for key, value in properties_of(gate, store=True).items()}
        with patch.dict(os.environ, told):
            self.use(through(own.lake, gate, store=True))
            try:
                said = list(act())
            except Killed:
                said = ["killed"]
            finally:
                self.use(own.lake)
        others, self._said = self._said, None
        return [*said, *(f"meanwhile: {line}" for line in others or ())]
