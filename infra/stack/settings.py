"""Ports and credentials of a stack: chosen once per folder, and kept in a file that only its owner can read."""

import json
import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.environment import variable

HOST = "127.0.0.1"
BUCKET = "lake"
DATABASE = "catalogs"
REGION = "us-east-1"
SQL = "sql"
REST = "rest"
_FILE = "stack.json"
_PORTS = ("postgres_port", "s3_port", "rest_port", "master_port", "master_ui_port")
_CREDENTIALS = ("superuser_password", "database_password", "access_key_id", "secret_access_key", "token")


@dataclass(frozen=True)
class Settings:
    """Ports on 127.0.0.1, and credentials that were made at random."""

    postgres_port: int
    s3_port: int
    rest_port: int
    master_port: int
    master_ui_port: int
    superuser_password: str
    database_password: str
    access_key_id: str
    secret_access_key: str
    token: str

    @classmethod
    def of(cls, folder: Path) -> "Settings":
        """Those of the stack in ``folder``; made when there are none."""
        path = folder / _FILE
        if not path.exists():
            made: dict[str, int | str] = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
            made |= {name: secrets.token_hex(16) for name in _CREDENTIALS}
            write_private(path, json.dumps(made))
        return cls(**json.loads(path.read_text()))

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secrets, which must appear in no output."""
        return (self.superuser_password, self.database_password, self.secret_access_key, self.token)

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
        return {
            SQL: {
                "type": "sql",
                "uri": f"postgresql+psycopg2://{login}@{HOST}:{self.postgres_port}/{DATABASE}",
                "warehouse": f"s3://{BUCKET}/{SQL}",
                "s3.endpoint": self.s3_endpoint,
                "s3.region": REGION,
            },
            REST: {
                "type": "rest",
                "uri": f"http://{HOST}:{self.rest_port}",
                "token": self.token,
                "s3.endpoint": self.s3_endpoint,
                "s3.region": REGION,
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


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, at no moment anybody else."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different: held together while they are chosen."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
