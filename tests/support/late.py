"""A real SQL catalog to which one commit to a table is under way for as long as the test wants.

PyIceberg loads the class through its own ``py-catalog-impl`` setting.
"""

import threading
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table

from firnlake.iceberg.catalog import Lake

if TYPE_CHECKING:
    from collections.abc import Callable


class LateCatalog(SqlCatalog):
    """The first commit to the table that is named ``late``: with ``answers`` = ``no`` the caller hears of a broken
    connection at once, and ``under_way`` is what the catalog has yet to do; else the caller stands still until ``go``.
    With ``answers`` = ``down`` it hears of the same, and the catalog loads nothing for it from then on.
    """

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self.under_way: Callable[[], CommitTableResponse] | None = None
        self.came, self.go = threading.Event(), threading.Event()
        self.arriving = False

    def load_table(self, identifier: Any) -> Table:
        if self.properties["answers"] == "down" and self.came.is_set() and not self.arriving:
            raise ConnectionError("the catalog is down")
        return super().load_table(identifier)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        if table.name()[-1] != self.properties["late"] or self.came.is_set():
            return super().commit_table(table, requirements, updates)
        self.under_way = lambda: self._arrive(table, requirements, updates)
        self.came.set()
        if self.properties["answers"] in ("no", "down"):
            raise ConnectionError("the connection broke")
        assert self.go.wait(60)
        return self.under_way()

    def _arrive(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        self.arriving = True
        try:
            return super().commit_table(table, requirements, updates)
        finally:
            self.arriving = False


def late(lake: Lake, table: str, answers: str) -> tuple[Lake, LateCatalog]:
    """``lake`` through a catalog that is ``late`` for ``table``, and that catalog."""
    own = {key: value for key, value in lake.properties.items() if key != "type"}
    impl = f"{LateCatalog.__module__}.{LateCatalog.__name__}"
    found = Lake(lake.name, own | {"py-catalog-impl": impl, "late": table, "answers": answers}, lake.home)
    catalog = found.catalog
    assert isinstance(catalog, LateCatalog)
    return found, catalog
