"""A real SQL catalog that applies one commit to the topic table and then says that the connection broke.

PyIceberg loads the class through its own ``py-catalog-impl`` setting. With ``down`` = ``yes`` it loads nothing then.
"""

from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table


class ForgetfulCatalog(SqlCatalog):
    """Everything is the SQL catalog's own, but for what is said after that commit."""

    forgot = False

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        response = super().commit_table(table, requirements, updates)
        if "__stage_" not in table.name()[-1] and not self.forgot:
            self.forgot = True
            raise ConnectionError("the connection broke")
        return response

    def load_table(self, identifier: Any) -> Table:
        if self.forgot and self.properties.get("down") == "yes":
            raise ConnectionError("the catalog is down")
        return super().load_table(identifier)
