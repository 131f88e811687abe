"""A catalog's PyIceberg properties under the names that Iceberg's Java library has for them.

Only tests and benchmarks need this: foreign writers, foreign readers and peers run Iceberg's own Spark runtime.
Sources: PyIceberg docs, "Catalogs" and "FileIO"; Iceberg docs, "AWS", "JDBC integration" and "REST catalog".
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from sqlalchemy.engine import URL, make_url

from firnlake.iceberg.catalog import BUSY_SECONDS, Lake

_RENAMED = {
    "s3.region": "client.region",
    "client.access-key-id": "s3.access-key-id",
    "client.secret-access-key": "s3.secret-access-key",
    "client.session-token": "s3.session-token",
}
_OF_STORE = ("s3.", "client.")
_OF_PYTHON = ("type", "py-")


def java_properties(lake: Lake) -> dict[str, str]:
    """Properties of the same catalog for Iceberg's Java library; a SQL catalog or a REST one."""
    properties = lake.properties
    if properties.get("type", "").lower() == "rest" or properties.get("uri", "").startswith("http"):
        own = {key: value for key, value in properties.items() if not key.startswith(_OF_PYTHON)}
        return {"type": "rest"} | _store(own)
    own = {key: value for key, value in properties.items() if key.startswith(_OF_STORE)}
    return _jdbc(lake) | _store(own) | _files(properties.get("warehouse", ""))


def _store(properties: Mapping[str, str]) -> dict[str, str]:
    """The object store's part, renamed; what PyIceberg takes for granted, Java is told."""
    found = {_RENAMED.get(key, key): value for key, value in properties.items()}
    virtual = found.pop("s3.force-virtual-addressing", "false").lower() == "true"
    # An endpoint of one's own has the bucket in the path unless told otherwise (Arrow's rule); Java's S3 client
    # always has it in the host name.
    if "s3.endpoint" in found and not virtual:
        found.setdefault("s3.path-style-access", "true")
    return found


def _files(warehouse: str) -> dict[str, str]:
    """The class that reads and writes files: of a SQL catalog Hadoop's otherwise, which know no object store."""
    if urlsplit(warehouse).scheme in ("", "file"):
        return {}
    return {"io-impl": "org.apache.iceberg.io.ResolvingFileIO"}


def _jdbc(lake: Lake) -> dict[str, str]:
    url = make_url(lake.properties["uri"])
    settings = {"type": "jdbc", "jdbc.schema-version": "V1", "warehouse": lake.properties.get("warehouse", "")}
    if url.get_backend_name() == "sqlite":
        return settings | {"uri": f"jdbc:sqlite:{url.database}?busy_timeout={BUSY_SECONDS * 1000}"}
    credentials = {"jdbc.user": url.username, "jdbc.password": url.password}
    given = {key: str(value) for key, value in credentials.items() if value}
    return settings | {"uri": _postgresql(url)} | given


def _postgresql(url: URL) -> str:
    return f"jdbc:postgresql://{url.host or 'localhost'}:{url.port or 5432}/{url.database}"
