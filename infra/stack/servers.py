"""The other servers of the stack: an object store that speaks S3, a REST catalog, a Spark master with two workers."""

import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

from infra import java
from infra.processes import Process, start
from infra.stack.settings import BUCKET, DATABASE, HOST, REST, Settings, write_private

WORKERS = 2
LIGHT = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable")
"""Options of a JVM that serves a few requests: small, and soon up."""
_MIB = 1 << 20


def serve_s3(folder: Path, settings: Settings, environment: Mapping[str, str]) -> Process:
    """Start S3Proxy on a folder of files, with one bucket in it."""
    objects = folder / "objects"
    objects.mkdir(exist_ok=True)
    # To S3Proxy a bucket is public if everybody may read its folder.
    (objects / BUCKET).mkdir(mode=0o700, exist_ok=True)
    configuration = {
        "s3proxy.endpoint": settings.s3_endpoint,
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": settings.access_key_id,
        "s3proxy.credential": settings.secret_access_key,
        "s3proxy.v4-max-non-chunked-request-size": str(64 * _MIB),
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": str(objects),
        "jclouds.identity": "unused",
        "jclouds.credential": "unused",
    }
    properties = folder / "s3proxy.properties"
    write_private(properties, "".join(f"{key}={value}\n" for key, value in configuration.items()))
    server = [java.program(), *LIGHT, "-jar", str(java.jar(java.STACK_JARS, "s3proxy-*.jar"))]
    return start("s3", [*server, "--properties", str(properties)], folder, environment)


def serve_rest(folder: Path, settings: Settings, environment: Mapping[str, str]) -> Process:
    """Start the REST catalog; its tables are rows in PostgreSQL and objects in the store."""
    class_path = java.compiled(Path(__file__).with_name("RestCatalog.java"), folder / "classes", java.STACK_JARS)
    catalog = {
        "CATALOG_NAME": REST,
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_URI": f"jdbc:postgresql://{HOST}:{settings.postgres_port}/{DATABASE}",
        "CATALOG_JDBC_USER": "firn",
        "CATALOG_JDBC_PASSWORD": settings.database_password,
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
        "CATALOG_WAREHOUSE": f"s3://{BUCKET}/{REST}",
        "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
        "CATALOG_S3_ENDPOINT": settings.s3_endpoint,
        "CATALOG_S3_PATH__STYLE__ACCESS": "true",
        "REST_PORT": str(settings.rest_port),
        "REST_TOKEN": settings.token,
    }
    command = [java.program(), *LIGHT, "-cp", class_path, "RestCatalog"]
    return start("rest", command, folder, {**environment, **catalog, **settings.aws})


def serve_master(folder: Path, settings: Settings, environment: Mapping[str, str]) -> Process:
    """Start the master of Spark's own cluster manager."""
    options = ["--host", HOST, "--port", str(settings.master_port), "--webui-port", str(settings.master_ui_port)]
    return _spark("master", "master.Master", options, folder, environment)


def serve_worker(number: int, folder: Path, settings: Settings, environment: Mapping[str, str]) -> Process:
    """Start a worker with one core and a gigabyte, for one executor.

    Executors inherit its environment, and with it the credentials of the object store.
    """
    place = ["--host", HOST, "--work-dir", str(folder / f"worker-{number}")]
    options = [*place, "--webui-port", "0", "--cores", "1", "--memory", "1g", settings.master]
    return _spark(f"worker-{number}", "worker.Worker", options, folder, {**environment, **settings.aws})


def _spark(name: str, role: str, options: list[str], folder: Path, environment: Mapping[str, str]) -> Process:
    home = find_spec("pyspark")
    assert home is not None
    assert home.origin is not None
    spark = Path(home.origin).parent
    own = {
        "SPARK_HOME": str(spark),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dspark.worker.cleanup.enabled=true",
    }
    # Those are for drivers: the class path of one, and an archive of the classes that it loads.
    inherited = {key: value for key, value in environment.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    command = [str(spark / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *options]
    return start(name, command, folder, inherited | own)


def listens(port: int) -> bool:
    """True when a server answers on ``port``."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def alive_workers(settings: Settings) -> int:
    """Number of workers that the master believes to be alive; 0 while it does not answer."""
    with suppress(OSError, ValueError), urlopen(f"http://{HOST}:{settings.master_ui_port}/json/", timeout=5) as answer:
        return int(json.load(answer)["aliveworkers"])
    return 0
