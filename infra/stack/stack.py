"""A lake as it runs for real, on one machine and without containers: PostgreSQL, an object store that speaks S3, a REST
catalog, and a Spark master with two workers. ``make stack-up`` and ``make stack-down`` start and stop it.

    python -m infra.stack.stack up|down

Each part is a child process with a log in the stack's folder, and listens on 127.0.0.1 only. Everything lies under
$FIRN_HOME/stack (default .firn/stack) and is still there after the next start.
"""

import json
import os
import pwd
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from rich.console import Console

from firnlake.iceberg.catalog import Lake
from infra import java
from infra.environment import variable
from infra.processes import HOST, Process, free_ports, listens, members, spark_home, start, started, stop

BUCKET = "lake"
DATABASE = "postgres"
"""PostgreSQL makes it by itself."""
REGION = "us-east-1"
SQL = "sql"
REST = "rest"
WORKERS = 2
READY_WITHIN = 90  # seconds; a slow machine needs a quarter of it
POSTGRES: Final[Mapping[str, str]] = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "shared_buffers": "32MB",
    "max_connections": "60",
    # A catalog that is made anew for each test; a real one leaves this alone.
    "fsync": "off",
}
LIGHT = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable")
"""Options of a JVM that serves a few requests: small, and soon up."""
_PLACE = "postgres.place"
_MIB = 1 << 20

console = Console(highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Settings:
    """Ports on 127.0.0.1, and credentials that were made at random."""

    postgres_port: int
    s3_port: int
    rest_port: int
    master_port: int
    master_ui_port: int
    database_password: str
    access_key_id: str
    secret_access_key: str
    token: str

    @classmethod
    def of(cls, folder: Path) -> "Settings":
        """Those of the stack in ``folder``: chosen once, and kept in a file that only its owner can read."""
        path = folder / "stack.json"
        if not path.exists():
            names = [one.name for one in fields(cls)]
            ports = [name for name in names if name.endswith("_port")]
            made: dict[str, int | str] = {name: secrets.token_hex(16) for name in names}
            _write_private(path, json.dumps(made | dict(zip(ports, free_ports(len(ports)), strict=True))))
        return cls(**json.loads(path.read_text()))

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secrets, which must appear in no output."""
        return (self.database_password, self.secret_access_key, self.token)

    @property
    def s3_endpoint(self) -> str:
        return f"http://{HOST}:{self.s3_port}"

    @property
    def master(self) -> str:
        """Spark's address of the cluster."""
        return f"spark://{HOST}:{self.master_port}"

    @property
    def aws(self) -> dict[str, str]:
        """Credentials of the object store in the variables that all AWS clients read."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
            "AWS_REGION": REGION,
        }

    def catalogs(self) -> Mapping[str, Mapping[str, str]]:
        """PyIceberg's properties of the two catalogs.

        ``sql`` finds the store's credentials in the environment, ``rest`` has them among its own properties: both are
        usual, and both have to work.
        """
        login = f"firn:{self.database_password}"
        s3 = {"s3.endpoint": self.s3_endpoint, "s3.region": REGION}
        return {
            SQL: {
                "type": "sql",
                "uri": f"postgresql+psycopg2://{login}@{HOST}:{self.postgres_port}/{DATABASE}",
                "warehouse": f"s3://{BUCKET}/{SQL}",
                **s3,
            },
            REST: {
                "type": "rest",
                "uri": f"http://{HOST}:{self.rest_port}",
                "token": self.token,
                **s3,
                "s3.access-key-id": self.access_key_id,
                "s3.secret-access-key": self.secret_access_key,
            },
        }

    def environment(self, catalog: str) -> dict[str, str]:
        """Variables with which ``firn`` finds ``catalog``, in addition to the environment."""
        configured = {
            variable(name, key): value
            for name, properties in self.catalogs().items()
            for key, value in properties.items()
        }
        own = {"PYICEBERG_DEFAULT_CATALOG": catalog}
        return configured | (self.aws if catalog == SQL else {}) | own


def _write_private(path: Path, content: str) -> None:
    """Write a file that only its owner can read, at no moment anybody else."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(content)


@dataclass(frozen=True)
class Stack:
    """The stack in ``folder``: running, or not."""

    folder: Path
    settings: Settings
    children: list[Process] = field(default_factory=list)
    """The part that this process has started."""

    @classmethod
    def of(cls, folder: Path) -> "Stack":
        """The stack in ``folder``, which is made."""
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, Settings.of(folder))

    @property
    def is_up(self) -> bool:
        """True when any of its processes is alive."""
        return bool(members(started(self.folder)))

    def environment(self, catalog: str = SQL) -> dict[str, str]:
        """A whole environment in which ``firn`` works on ``catalog``, ``sql`` or ``rest``, and on no other lake."""
        foreign = ("PYICEBERG_", "AWS_", "CATALOG_")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return inherited | self.settings.environment(catalog)

    def lake(self, catalog: str, home: Path) -> Lake:
        """The lake of ``catalog`` for this process, which has the store's credentials in its environment."""
        return Lake(catalog, dict(self.settings.catalogs()[catalog]), home)

    def up(self, *, cluster: bool = True) -> None:
        """Start all parts, Spark's cluster too unless told otherwise; returns once each of them answers."""
        self._start_s3()
        self.start_postgres()
        self._wait("the object store", lambda: listens(self.settings.s3_port))
        self._start_rest()
        if cluster:
            self.start_cluster()
        self._wait("the REST catalog", lambda: listens(self.settings.rest_port))

    def down(self) -> int:
        """Stop all parts; what they have stored stays. Returns how many processes there were."""
        stopped = stop(self.folder)
        for child in self.children:
            child.wait()
        return stopped

    def remove(self) -> None:
        """Delete everything that a stopped stack has stored."""
        place = self.folder / _PLACE
        if place.exists():
            shutil.rmtree(place.read_text(), ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def write_environment(self) -> Path:
        """A file for shells to source, which only its owner can read."""
        own = self.settings.environment(SQL) | {"FIRN_SPARK_MASTER": self.settings.master}
        path = self.folder / "environment"
        _write_private(path, "".join(f"export {name}='{value}'\n" for name, value in own.items()))
        return path

    def start_postgres(self) -> None:
        """Start PostgreSQL, for the SQL catalog and for what the REST catalog keeps, in a cluster of its own."""
        bin_folder = postgres_programs()
        if bin_folder is None:
            raise SystemExit("firn: no initdb on the PATH or in /usr/lib/postgresql; allowed: Debian's postgresql")
        user = _user()
        data = _place(self.folder, user) / "data"
        if not (data / "PG_VERSION").exists():
            _initialise(bin_folder, data, self.settings.database_password, user)
        options = [f"--{name}={value}" for name, value in POSTGRES.items()]
        command = [str(bin_folder / "postgres"), "-D", str(data), "-p", str(self.settings.postgres_port), *options]
        self._start("postgres", command, self.environment(), user)
        asked = [str(bin_folder / "pg_isready"), "--quiet", "-h", HOST, "-p", str(self.settings.postgres_port)]
        self._wait("PostgreSQL", lambda: subprocess.run(asked, check=False).returncode == 0)

    def _start_s3(self) -> None:
        """Start S3Proxy on a folder of files, with one bucket in it."""
        objects = self.folder / "objects"
        objects.mkdir(exist_ok=True)
        # To S3Proxy a bucket is public if everybody may read its folder.
        (objects / BUCKET).mkdir(mode=0o700, exist_ok=True)
        configuration = {
            "s3proxy.endpoint": self.settings.s3_endpoint,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": self.settings.access_key_id,
            "s3proxy.credential": self.settings.secret_access_key,
            "s3proxy.v4-max-non-chunked-request-size": str(64 * _MIB),
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(objects),
            "jclouds.identity": "unused",
            "jclouds.credential": "unused",
        }
        properties = self.folder / "s3proxy.properties"
        _write_private(properties, "".join(f"{key}={value}\n" for key, value in configuration.items()))
        server = [java.program(), *LIGHT, "-jar", str(java.jar(java.STACK_JARS, "s3proxy-*.jar"))]
        self._start("s3", [*server, "--properties", str(properties)], self.environment())

    def _start_rest(self) -> None:
        """Start the REST catalog; its tables are rows in PostgreSQL and objects in the store."""
        source = Path(__file__).with_name("RestCatalog.java")
        class_path = java.compiled(source, self.folder / "classes", java.STACK_JARS)
        catalog = {
            "CATALOG_NAME": REST,
            "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
            "CATALOG_URI": f"jdbc:postgresql://{HOST}:{self.settings.postgres_port}/{DATABASE}",
            "CATALOG_JDBC_USER": "firn",
            "CATALOG_JDBC_PASSWORD": self.settings.database_password,
            "CATALOG_JDBC_SCHEMA__VERSION": "V1",
            "CATALOG_WAREHOUSE": f"s3://{BUCKET}/{REST}",
            "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
            "CATALOG_S3_ENDPOINT": self.settings.s3_endpoint,
            "CATALOG_S3_PATH__STYLE__ACCESS": "true",
            "REST_PORT": str(self.settings.rest_port),
            "REST_TOKEN": self.settings.token,
        }
        command = [java.program(), *LIGHT, "-cp", class_path, "RestCatalog"]
        self._start("rest", command, {**self.environment(), **catalog, **self.settings.aws})

    def start_cluster(self) -> None:
        """Start the master of Spark's own cluster manager, and its workers."""
        ports = ["--port", str(self.settings.master_port), "--webui-port", str(self.settings.master_ui_port)]
        self._start_spark("master", "master.Master", ["--host", HOST, *ports])
        for number in range(1, WORKERS + 1):
            self.start_worker(number)
        self._wait("Spark's cluster", lambda: self._alive_workers() == WORKERS)

    def start_worker(self, number: int) -> int:
        """Start a worker with one core and a gigabyte, for one executor; returns its process id.

        It finds the master as soon as there is one. Executors inherit its environment, and with it the credentials of
        the object store.
        """
        place = ["--host", HOST, "--work-dir", str(self.folder / f"worker-{number}")]
        options = [*place, "--webui-port", "0", "--cores", "1", "--memory", "1g", self.settings.master]
        return self._start_spark(f"worker-{number}", "worker.Worker", options)

    def _alive_workers(self) -> int:
        """Number of workers that the master believes to be alive; 0 while it does not answer."""
        address = f"http://{HOST}:{self.settings.master_ui_port}/json/"
        with suppress(OSError, ValueError), urlopen(address, timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
        return 0

    def _start_spark(self, name: str, role: str, options: Sequence[str]) -> int:
        home = spark_home()
        own = {
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dspark.worker.cleanup.enabled=true",
        }
        # Those are for drivers: the class path of one, and an archive of the classes that it loads.
        drivers = ("SPARK_", "PYSPARK_")
        inherited = {key: value for key, value in self.environment().items() if not key.startswith(drivers)}
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *options]
        return self._start(name, command, inherited | self.settings.aws | own)

    def _start(self, name: str, command: Sequence[str], variables: Mapping[str, str], user: str | None = None) -> int:
        child = start(name, command, self.folder, variables, user)
        self.children.append(child)
        return child.pid

    def _wait(self, part: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_WITHIN
        while not ready():
            if time.monotonic() > deadline:
                raise SystemExit(f"firn: {part} does not answer after {READY_WITHIN} s, see {self.folder}/*.log")
            time.sleep(0.2)


def postgres_programs() -> Path | None:
    """The folder of PostgreSQL's programs: on the PATH, or where Debian puts them; None when there are none."""
    paths = [shutil.which("initdb"), *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")))]
    return next((Path(one).resolve().parent for one in paths if one), None)


def _user() -> str | None:
    """The user as whom PostgreSQL runs, because it refuses root; None for the user of this process."""
    if os.geteuid() != 0:
        return None
    there = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in there)


def _place(folder: Path, user: str | None) -> Path:
    """The folder of PostgreSQL's own: in ``folder``, unless ``user`` can't get there; then a temporary one."""
    note = folder / _PLACE
    if note.exists() and Path(note.read_text()).exists():
        return Path(note.read_text())
    above = (folder, *folder.parents)
    if user is None or all(one.stat().st_mode & stat.S_IXOTH for one in above):
        place = folder / "postgres"
        place.mkdir(exist_ok=True)
    else:
        place = Path(tempfile.mkdtemp(prefix="firn-postgres-"))
        note.write_text(str(place))
    if user is not None:
        shutil.chown(place, user)
    return place


def _initialise(bin_folder: Path, data: Path, secret: str, user: str | None) -> None:
    password = data.parent / "password"
    _write_private(password, secret)
    if user is not None:
        shutil.chown(password, user)
    command = [str(bin_folder / "initdb"), "-D", str(data), "-U", "firn", "--auth=scram-sha-256"]
    command += [f"--pwfile={password}", "--encoding=UTF8", "--locale=C", "--no-sync"]
    done = subprocess.run(command, user=user, group=user, cwd=data.parent, capture_output=True, text=True, check=False)
    password.unlink()
    if done.returncode != 0:
        raise SystemExit(f"firn: initdb failed: {done.stderr.strip()}")


def main() -> None:
    """Entry point."""
    stack = Stack.of(Path(os.environ.get("FIRN_HOME", ".firn")).resolve() / "stack")
    match sys.argv[1:]:
        case ["up"]:
            if not stack.is_up:
                with console.status("the stack starts"):
                    stack.up()
            settings, shown = stack.settings, os.path.relpath(stack.write_environment())
            console.print(f"Spark: {settings.master}, UI http://127.0.0.1:{settings.master_ui_port}")
            console.print(f"object store: {settings.s3_endpoint}; logs: {os.path.relpath(stack.folder)}/*.log")
            console.print(f"`. {shown}` once in a shell, then `firn create shop.orders` works on the SQL catalog;")
            console.print("`export PYICEBERG_DEFAULT_CATALOG=rest` turns to the REST catalog.")
            console.print("`make stack-down` stops everything.")
        case ["down"]:
            stopped = stack.down()
            console.print(f"the stack is stopped, {stopped} processes" if stopped else "the stack is not running")
        case _:
            raise SystemExit("usage: python -m infra.stack.stack up|down")


if __name__ == "__main__":
    main()
