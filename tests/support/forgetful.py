"""Real SQL catalogs that do what they are asked to and don't say so.

PyIceberg loads the classes through its own ``py-catalog-impl`` setting.
"""

from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from sqlalchemy.exc import OperationalError


class ForgetfulCatalog(SqlCatalog):
    """Applies one commit to a table that is no stage and then says that the connection broke: in Python's words, or in
    SQLAlchemy's when it ``says`` = ``sql``. With ``down`` = ``yes`` it loads nothing then."""

    forgot = False

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        response = super().commit_table(table, requirements, updates)
        if "__stage_" not in table.name()[-1] and not self.forgot:
            self.forgot = True
            reason = ConnectionError("the connection broke")
            if self.properties.get("says") == "sql":
                raise OperationalError("COMMIT", {}, reason, connection_invalidated=True)
            raise reason
        return response

    def load_table(self, identifier: Any) -> Table:
        if self.forgot and self.properties.get("down") == "yes":
            raise ConnectionError("the catalog is down")
        return super().load_table(identifier)


class BusyCatalog(SqlCatalog):
    """Registers a table, and is busy the first time that it is to load it, which is for its answer."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self.registered: set[Any] = set()
        self.answered: set[Any] = set()

    def register_table(self, identifier: Any, metadata_location: str, overwrite: bool = False) -> Table:
        self.registered.add(identifier)
        return super().register_table(identifier, metadata_location, overwrite)

    def load_table(self, identifier: Any) -> Table:
        if identifier in self.registered - self.answered:
            self.answered.add(identifier)
            raise OperationalError("SELECT", {}, Exception("database is locked"))
        return super().load_table(identifier)
