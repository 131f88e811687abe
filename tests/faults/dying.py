"""A real SQL catalog whose process is killed (SIGKILL) at one chosen catalog call.

``FIRN_TEST_DIE`` says where: ``before|after <method> <part of the table's name> <n>``, the n-th such call, from 1.
PyIceberg loads the class through its own ``py-catalog-impl`` setting.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table


class DyingCatalog(SqlCatalog):
    """Everything is the SQL catalog's own, but for the moment of death."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._moment, self._method, self._part, number = os.environ["FIRN_TEST_DIE"].split()
        self._left = int(number)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        with self._mortal("commit_table", table.name()):
            return super().commit_table(table, requirements, updates)

    def register_table(self, identifier: Any, metadata_location: str, overwrite: bool = False) -> Table:
        with self._mortal("register_table", identifier):
            return super().register_table(identifier, metadata_location, overwrite)

    def drop_table(self, identifier: Any) -> None:
        with self._mortal("drop_table", identifier):
            super().drop_table(identifier)

    @contextmanager
    def _mortal(self, method: str, identifier: Any) -> Iterator[None]:
        due = method == self._method and self._part in Catalog.table_name_from(identifier)
        self._left -= due
        now = due and self._left == 0
        if now and self._moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        yield
        if now and self._moment == "after":
            os.kill(os.getpid(), signal.SIGKILL)
