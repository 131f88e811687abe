"""Register an empty table shaped like another one: same schema with the same field ids, specs and sort orders.

Field ids are what files and tables agree by, so a table that shall take over files of another can't be created afresh
(a catalog assigns new ids). Its metadata is copied and registered instead.
"""

import time
import uuid
from collections.abc import Mapping
from typing import Any

from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil

from pipeline.lake.catalog import Lake
from pipeline.lake.mapping import COLUMNS

_EMPTY: dict[str, Any] = {
    "last-sequence-number": 0,
    "current-snapshot-id": None,
    "snapshots": [],
    "snapshot-log": [],
    "metadata-log": [],
    "refs": {},
    "statistics": [],
    "partition-statistics": [],
}


def derive(
    lake: Lake,
    model: Table,
    identifier: str,
    location: str,
    properties: Mapping[str, str],
    changes: Mapping[str, Any] | None = None,
) -> Table:
    """The table ``identifier`` at ``location``, empty, like ``model`` but for ``properties`` and metadata ``changes``.

    When another process registered the same name first, that table is returned.
    """
    metadata = TableMetadataUtil.parse_obj(
        model.metadata.model_dump(by_alias=True)
        | _EMPTY
        | {
            "table-uuid": str(uuid.uuid4()),
            "location": location,
            "last-updated-ms": time.time_ns() // 1_000_000,
            # A table derived from an adopted one has its columns.
            "properties": {name: model.properties[name] for name in (COLUMNS,) if name in model.properties}
            | dict(properties),
        }
        | dict(changes or {})
    )
    place = f"{location}/metadata/00000-{uuid.uuid4()}.metadata.json"
    ToOutputFile.table_metadata(metadata, model.io.new_output(place))
    try:
        return lake.when_free(lambda: lake.catalog.register_table(identifier, place))
    except TableAlreadyExistsError:
        found = lake.table(identifier)
        # A catalog that was too busy to say so may have registered this very file before it was asked again.
        if found.metadata.table_uuid != metadata.table_uuid:
            model.io.delete(place)
        return found
