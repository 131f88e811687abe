"""Firn: Kafka's log compaction for Apache Iceberg tables. `firnlake.open` is the way in from Python."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from firnlake.door import OpenCatalog
    from firnlake.engine.engine import Engine


def open(  # noqa: A001  # read as `firnlake.open`
    catalog: str | None = None,
    *,
    now: Callable[[], int] | None = None,
    home: Path | None = None,
    engine: Engine | None = None,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> OpenCatalog:
    """Open a catalog: ``catalog`` of PyIceberg's configuration, by default its only or default one, or the embedded
    lake where none is configured. ``properties`` are PyIceberg's, such as ``uri`` or ``py-catalog-impl``, and count
    before the configuration's.

    ``now`` is the clock by which things are due, in milliseconds since the epoch, ``home`` the folder FIRN_HOME,
    ``engine`` where tasks run. Raises RefusedError if the configuration does not name a catalog.
    """
    from firnlake import clock
    from firnlake.door import OpenCatalog
    from firnlake.iceberg.catalog import Lake

    return OpenCatalog(Lake.load(home, catalog, properties), now or clock.now_ms, engine)
