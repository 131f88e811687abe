"""A real SQL catalog at whose calls a test does something: what another process does meanwhile, or the end of this one.

PyIceberg loads the class through its own ``py-catalog-impl`` setting.
"""

from collections.abc import Callable
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table

from firnlake.iceberg.catalog import Lake

Watch = Callable[[str], object]
"""Is told each call: ``before load``, ``before commit``, ``before swap`` (the catalog has loaded what it is to compare,
and not yet swapped it) and ``after commit``."""


class WatchedCatalog(SqlCatalog):
    """Everything is the SQL catalog's own."""

    watch: Watch | None = None
    committing = False

    def load_table(self, identifier: Any) -> Table:
        if not self.committing:
            self._tell("before load")
        found = super().load_table(identifier)
        if self.committing:
            self._tell("before swap")
        return found

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        self._tell("before commit")
        self.committing = True
        try:
            response = super().commit_table(table, requirements, updates)
        finally:
            self.committing = False
        self._tell("after commit")
        return response

    def _tell(self, call: str) -> None:
        if self.watch:
            self.watch(call)


class Killed(BaseException):
    """The end of a process: nothing of Firn's catches it."""


class Nth:
    """Acts at the ``nth`` call (from 1), or the nth of those that are ``only``, and never again."""

    def __init__(self, nth: int, action: Callable[[], object], only: str = "") -> None:
        self._left = nth
        self._action = action
        self._only = only

    @property
    def acted(self) -> bool:
        """True when there was such a call."""
        return self._left <= 0

    def __call__(self, call: str) -> None:
        if self._only in call:
            self._left -= 1
            if self._left == 0:
                self._action()


def die() -> None:
    """The end of a process that is killed."""
    raise Killed


def watched(lake: Lake, watch: Watch) -> Lake:
    """``lake`` through a catalog that is watched from now on."""
    own = {key: value for key, value in lake.properties.items() if key != "type"}
    impl = f"{WatchedCatalog.__module__}.{WatchedCatalog.__name__}"
    found = Lake(lake.name, own | {"py-catalog-impl": impl}, lake.home)
    catalog = found.catalog
    assert isinstance(catalog, WatchedCatalog)
    catalog.watch = watch
    return found
