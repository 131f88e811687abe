"""States of an embedded lake that many tests begin with: each is made once per process, and put back for every test.

Metadata holds absolute paths, so all lakes of a process lie at one path, one after the other.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, TypeVar

from firnlake.iceberg.catalog import Lake

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")


class Templates:
    """The home of the lake of the running test, and copies of homes to begin with."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self._copies = folder / "copies"
        self._made: dict[tuple[str, ...], object] = {}
        self._steps: tuple[str, ...] = ()

    def empty(self) -> Lake:
        """A lake without a table."""
        self._steps = ()
        shutil.rmtree(self.home, ignore_errors=True)
        return Lake.embedded(self.home)

    def step(self, lake: Lake, name: str, make: Callable[[Lake], T]) -> T:
        """What ``make`` returns, and the state in which it leaves the lake, after the steps of this test so far.

        From the second time on that is a copy. When the test has used the lake otherwise, ``make`` is called again: its
        state is no template's. The value is shared between tests, so it must be one that nobody changes.
        """
        if "catalog" in vars(lake):
            return make(lake)
        self._steps = (*self._steps, name)
        copy = self._copies.joinpath("-".join(self._steps))
        if self._steps in self._made:
            shutil.rmtree(self.home, ignore_errors=True)
            shutil.copytree(copy, self.home)
        else:
            self._made[self._steps] = make(Lake.embedded(self.home))
            shutil.copytree(self.home, copy)
        made: T = self._made[self._steps]  # type: ignore[assignment]  # the name stands for one `make`
        return made
