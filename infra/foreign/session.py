"""A Spark session with Iceberg's Spark runtime on the lake's catalog: foreign writers, foreign readers, and peers.

The product needs none of this: its Spark has no jar, no catalog and no credentials. A catalog's PyIceberg properties
have other names in Iceberg's Java library. Sources: PyIceberg docs, "Catalogs" and "FileIO"; Iceberg docs, "AWS", "JDBC
integration" and "REST catalog".
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sqlalchemy.engine import make_url

from firnlake.iceberg.catalog import BUSY_SECONDS, Lake
from infra.environment import CHECKOUT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REQUIRED_JAR = "iceberg-spark-runtime-*.jar"
_RENAMED = {
    "s3.region": "client.region",
    "client.access-key-id": "s3.access-key-id",
    "client.secret-access-key": "s3.secret-access-key",
    "client.session-token": "s3.session-token",
}
_OF_STORE = ("s3.", "client.")
_OF_PYTHON = ("type", "py-")


def iceberg_session(lake: Lake, name: str, settings: Mapping[str, str] | None = None) -> "SparkSession":
    """The Spark session of this process, started when there is none, that knows the lake's catalog under its name.

    ``settings`` come on top of those of a small session. Master: FIRN_SPARK_MASTER, or two cores.
    """
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name)
    for key, value in (_defaults() | catalog_settings(lake) | dict(settings or {})).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for key, value in catalog_settings(lake).items():  # of a session that was there before
        spark.conf.set(key, value)
    return spark


def small_session(lake: Lake, name: str) -> "SparkSession":
    """Two cores, two shuffle partitions: as small as tests want it."""
    return iceberg_session(lake, name, {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"})


def catalog_settings(lake: Lake) -> dict[str, str]:
    """Spark settings under which ``spark.sql.catalog.<name>`` is the same catalog as ``lake.catalog``.

    Source: Iceberg docs, "Spark configuration".
    """
    prefix = f"spark.sql.catalog.{lake.name}"
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        # PyIceberg commits beside Spark in the same process: a cached table would be a stale one.
        f"{prefix}.cache-enabled": "false",
    } | {f"{prefix}.{key}": value for key, value in java_properties(lake).items()}


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
    return settings | {"uri": f"jdbc:postgresql://{url.host or 'localhost'}:{url.port or 5432}/{url.database}"} | given


def iceberg_jars() -> list[Path]:
    """Iceberg's Spark runtime, JDBC drivers and what else `make test` fetched; FIRN_JARS names another folder."""
    folder = Path(os.environ.get("FIRN_JARS") or CHECKOUT / ".cache" / "jars")
    jars = sorted(folder.glob("*.jar"))
    assert any(jar.match(REQUIRED_JAR) for jar in jars), f"no {REQUIRED_JAR} in {folder}: run `make test`"
    return jars


def _defaults() -> dict[str, str]:
    """Like the product's session, with jars. Driver and executor are one process: the class path reaches both."""
    master = os.environ.get("FIRN_SPARK_MASTER", "local[2]")
    jars = iceberg_jars()
    there = [Path(entry) for entry in os.environ.get("SPARK_DIST_CLASSPATH", "").split(":")]
    if not master.startswith("local"):
        where = {"spark.jars": ",".join(map(str, jars))}
    elif any(entry.match(REQUIRED_JAR) for entry in there):
        where = {}
    else:
        where = {"spark.driver.extraClassPath": ":".join(map(str, jars))}
    return where | {
        "spark.master": master,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.codegen.cache.maxEntries": "2000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
