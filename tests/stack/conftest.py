"""A stack of its own for these tests: PostgreSQL, an S3 server, a REST catalog and, when asked for, a Spark cluster."""

import os
from collections.abc import Iterator

import pytest

from infra.java import STACK_JARS
from infra.stack.stack import Stack, postgres_programs


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A running stack without the cluster; the store's credentials are in this process's environment."""
    if "FIRN_STACK" not in os.environ:
        pytest.skip("real catalogs, a real store and a real cluster are tested by `make stack-test`")
    if postgres_programs() is None:
        pytest.skip("PostgreSQL is not on this machine (Debian's package postgresql): real catalogs are NOT tested")
    if not list(STACK_JARS.glob("*.jar")):
        pytest.skip(f"no jars in {STACK_JARS} (`make stack-test` fetches them): real catalogs are NOT tested")
    started = Stack.of(tmp_path_factory.mktemp("stack"))
    with pytest.MonkeyPatch.context() as patched:
        for name, value in started.settings.aws.items():
            patched.setenv(name, value)
        try:
            started.up(cluster=False)
            yield started
        finally:
            started.down()
            started.remove()
