"""A real SQL catalog that does what it is asked to and doesn't say so.

PyIceberg loads the class through its own ``py-catalog-impl`` setting.
"""

from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from sqlalchemy.exc import OperationalError

from firnlake.iceberg.catalog import Lake


class ForgetfulCatalog(SqlCatalog):
    """Applies one commit and then says that the connection broke: in Python's words, or in SQLAlchemy's when it
    ``says`` = ``sql``; or that it is busy, when it ``says`` = ``busy``. With ``down`` = ``yes`` it loads nothing then.
    """

    forgot = False

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        response = super().commit_table(table, requirements, updates)
        if not self.forgot:
            self.forgot = True
            reason = ConnectionError("the connection broke")
            match self.properties.get("says"):
                case "sql":
                    raise OperationalError("COMMIT", {}, reason, connection_invalidated=True)
                case "busy":
                    raise OperationalError("COMMIT", {}, Exception("database is locked"))
                case _:
                    raise reason
        return response

    def load_table(self, identifier: Any) -> Table:
        if self.forgot and self.properties.get("down") == "yes":
            raise ConnectionError("the catalog is down")
        return super().load_table(identifier)


def through(lake: Lake, down: str, says: str = "") -> Lake:
    """``lake`` through such a catalog."""
    own = {key: value for key, value in lake.properties.items() if key != "type"}
    impl = f"{ForgetfulCatalog.__module__}.{ForgetfulCatalog.__name__}"
    return Lake(lake.name, own | {"py-catalog-impl": impl, "down": down, "says": says}, lake.home)
