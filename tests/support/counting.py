"""A real SQL catalog that remembers which tables were loaded from it and which namespaces were listed.

PyIceberg loads the class through its own ``py-catalog-impl`` setting.
"""

from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from firnlake.iceberg.catalog import Lake


class CountingCatalog(SqlCatalog):
    """Everything is the SQL catalog's own."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self.asked: list[str] = []

    def load_table(self, identifier: Any) -> Table:
        self.asked.append(f"load {identifier}")
        return super().load_table(identifier)

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        self.asked.append(f"list {namespace}")
        return super().list_tables(namespace)


def counted(lake: Lake) -> tuple[Lake, list[str]]:
    """The same lake through such a catalog, and what it was asked, which grows."""
    properties = {key: value for key, value in lake.properties.items() if key != "type"}
    counting = Lake(lake.name, properties | {"py-catalog-impl": f"{__name__}.CountingCatalog"}, lake.home)
    catalog = counting.catalog
    assert isinstance(catalog, CountingCatalog)
    return counting, catalog.asked
