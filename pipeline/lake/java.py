"""A catalog's PyIceberg properties under the names that Iceberg's Java library has for them.

Sources: PyIceberg docs, "Catalogs" and "FileIO"; Iceberg docs, "AWS", "JDBC integration" and "REST catalog". What only
one side knows is passed over there, so a property may be meant for either.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from pyiceberg.catalog import CatalogType, infer_catalog_type
from sqlalchemy.engine import URL, make_url

from pipeline.errors import RefusedError
from pipeline.lake.catalog import BUSY_SECONDS, Lake

_RENAMED = {
    "s3.region": "client.region",
    "client.access-key-id": "s3.access-key-id",
    "client.secret-access-key": "s3.secret-access-key",
    "client.session-token": "s3.session-token",
    "s3.sse-kms-key-id": "s3.sse.key",
}
_ENCRYPTION = {"AES256": "s3", "aws:kms": "kms", "aws:kms:dsse": "dsse-kms"}
_OF_STORE = ("s3.", "client.", "gcs.", "adls.")
_OF_PYTHON = ("type", "py-")
_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
"""Parameters of a PostgreSQL address that libpq and the JDBC driver call alike."""


def java_properties(lake: Lake) -> dict[str, str]:
    """Properties of the same catalog for Iceberg's Java library.

    Raises RefusedError for a catalog type that has no counterpart.
    """
    properties = lake.properties
    match properties.get("type", "").lower() or _inferred(lake):
        case CatalogType.SQL.value:
            own = {key: value for key, value in properties.items() if key.startswith(_OF_STORE)}
            return _jdbc(lake) | _store(own) | _files(properties.get("warehouse", ""))
        case CatalogType.REST.value:
            own = {key: value for key, value in properties.items() if not key.startswith(_OF_PYTHON)}
            return {"type": "rest"} | _store(own)
        case kind:
            raise RefusedError(f"catalog {lake.name} has type {kind!r}; allowed for Spark: sql, rest")


def _inferred(lake: Lake) -> str:
    try:
        found = infer_catalog_type(lake.name, {"uri": lake.properties.get("uri", "")})
    except ValueError:
        return CatalogType.SQL.value  # whose URI then is refused by name
    return found.value if found else CatalogType.SQL.value


def _store(properties: Mapping[str, str]) -> dict[str, str]:
    """The object store's part, renamed; what PyIceberg takes for granted, Java is told."""
    found = {_RENAMED.get(key, key): value for key, value in properties.items()}
    encryption = found.pop("s3.server-side-encryption", None)
    if encryption is not None:
        found["s3.sse.type"] = _ENCRYPTION.get(encryption, encryption)
    virtual = found.pop("s3.force-virtual-addressing", "false").lower() in ("true", "t", "1", "yes", "y", "on")
    # An endpoint of one's own has the bucket in the path unless told otherwise (Arrow's rule); Java's S3 client
    # always has it in the host name.
    if "s3.endpoint" in found and not virtual:
        found.setdefault("s3.path-style-access", "true")
    return found


def _files(warehouse: str) -> dict[str, str]:
    """What reads and writes files. Java's SQL catalog takes Hadoop's file systems, which know no object store here."""
    if urlsplit(warehouse).scheme in ("", "file"):
        return {}
    return {"io-impl": "org.apache.iceberg.io.ResolvingFileIO"}


def _jdbc(lake: Lake) -> dict[str, str]:
    url = make_url(lake.properties["uri"])
    settings = {"type": "jdbc", "jdbc.schema-version": "V1", "warehouse": lake.properties.get("warehouse", "")}
    match url.get_backend_name():
        case "sqlite":
            return settings | {"uri": f"jdbc:sqlite:{url.database}?busy_timeout={BUSY_SECONDS * 1000}"}
        case "postgresql":
            credentials = {"jdbc.user": url.username, "jdbc.password": url.password}
            given = {key: str(value) for key, value in credentials.items() if value}
            return settings | {"uri": _postgresql(url)} | given | _tls(url)
        case backend:
            raise RefusedError(f"SQL catalog on {backend!r}; allowed for Spark: sqlite, postgresql")


def _postgresql(url: URL) -> str:
    # An IPv6 address stands in brackets.
    host = f"[{url.host}]" if url.host and ":" in url.host else url.host or "localhost"
    return f"jdbc:postgresql://{host}:{url.port or 5432}/{url.database}"


def _tls(url: URL) -> dict[str, str]:
    """Encryption that the address asks for is asked for on both sides."""
    return {f"jdbc.{name}": str(url.query[name]) for name in _TLS if name in url.query}
