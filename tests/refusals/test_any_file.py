"""C26: any bytes land as records or are refused in one line by the file's name, and then they leave nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from firnlake.errors import FirnError, RefusedError
from infra.foreign.files import files_under, on_disk
from tests.contract.test_landing import written
from tests.support.examples import JSON, damaged, fuzzed, refused_or
from tests.support.records import History, rows_of

if TYPE_CHECKING:
    from tests.support.scenario import Scenario

RECORD: dict[str, Any] = {"key": "k", "value": "v", "topic": "orders", "partition": 0, "offset": 1, "timestamp": 1}
ROWS = rows_of(History().records("a=1 b=2 -=3 c="))
PARQUET = st.sampled_from(("none", "snappy", "zstd", "gzip")).map(lambda codec: written(ROWS, compression=codec))
LINES = st.lists(
    st.dictionaries(st.sampled_from([*RECORD, "level", "is_control", "is_transactional", "producer_id"]), JSON),
    max_size=3,
).map(lambda lines: "".join(json.dumps(RECORD | fields) + "\n" for fields in lines).encode())


@pytest.fixture
def made(scenario: Scenario) -> Scenario:
    scenario.table.create()
    return scenario


def lands_or_is_refused(made: Scenario, suffix: str, content: bytes) -> None:
    path, home = made.folder / f"any{suffix}", on_disk(made.loaded().location())
    path.write_bytes(content)
    before = made.loaded().metadata_location, files_under(home)
    found = refused_or(lambda: made.table.land(path))
    if isinstance(found, FirnError):
        assert isinstance(found, RefusedError), found
        assert path.name in str(found)
        assert (made.loaded().metadata_location, files_under(home)) == before
    else:
        assert found.repeated or found.records == 0 or len(made.rows()) >= found.records


@given(damaged(PARQUET) | PARQUET | st.binary(max_size=64))
@fuzzed
def test_c26_any_parquet_file(made: Scenario, content: bytes) -> None:
    lands_or_is_refused(made, ".parquet", content)


@given(damaged(LINES) | LINES | st.binary(max_size=64))
@fuzzed
@example(b"null")
@example(b"{}\nnull")
def test_c26_any_json_lines(made: Scenario, content: bytes) -> None:
    lands_or_is_refused(made, ".jsonl", content)
