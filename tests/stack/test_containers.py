"""The parts as containers start them, by the image's own script and compose's variables, on this machine instead."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import yaml  # type: ignore[import-untyped]  # has no type information

from infra.environment import CHECKOUT
from infra.processes import HOST, free_ports, listens
from infra.stack.stack import DATABASE, READY_WITHIN, Stack
from tests.support.commands import until

SERVICES = yaml.safe_load((CHECKOUT / "infra" / "compose" / "compose.yaml").read_text())["services"]


def test_the_object_store_lets_in_who_knows_the_key(stack: Stack, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    own = {**stack.settings.aws, "S3_PORT": str(port), "S3_FOLDER": str(tmp_path)}
    with serving("s3", own, port):
        assert (tmp_path / SERVICES["s3"]["environment"]["S3_BUCKET"]).is_dir()
        assert status(f"http://{HOST}:{port}/lake") == 403


def test_the_stacks_own_store_lets_nobody_else_in(stack: Stack) -> None:
    assert status(f"{stack.settings.s3_endpoint}/lake") == 403


def test_the_rest_catalog_lets_in_who_knows_the_token(stack: Stack) -> None:
    (port,) = free_ports(1)
    own = {
        **stack.settings.aws,
        "REST_CLASSES": str(stack.folder / "classes"),
        "REST_PORT": str(port),
        "REST_TOKEN": "open sesame",
        "CATALOG_JDBC_USER": "firn",
        "CATALOG_JDBC_PASSWORD": stack.settings.database_password,
        "CATALOG_URI": f"jdbc:postgresql://{HOST}:{stack.settings.postgres_port}/{DATABASE}",
        "CATALOG_S3_ENDPOINT": stack.settings.s3_endpoint,
    }
    with serving("rest", own, port):
        asked = f"http://{HOST}:{port}/v1/namespaces"
        assert status(asked) == 401
        assert status(asked, {"Authorization": "Bearer open sesame"}) == 200


@contextmanager
def serving(part: str, own: Mapping[str, str], port: int) -> Iterator[None]:
    """The part of that name, by compose's variables but for ``own``, until the block ends."""
    variables = {name: value for name, value in SERVICES[part]["environment"].items() if "${" not in value}
    environment = {"PATH": os.environ["PATH"], "BIND": HOST, **variables, **own}
    process = subprocess.Popen([str(CHECKOUT / "infra" / "containers" / "serve"), part], env=environment)
    try:
        assert until(lambda: listens(port), READY_WITHIN, alive=lambda: process.poll() is None)
        yield
    finally:
        process.kill()
        process.wait()


def status(url: str, headers: Mapping[str, str] | None = None) -> int:
    """The status that a server answers with."""
    try:
        with urlopen(Request(url, headers=dict(headers or {})), timeout=20) as answer:  # noqa: S310  # our own server
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code
