"""`firn.report.samples` applies to all output of Firn that shows records, refused plans included."""

from typing import Any

import pytest

from firnlake.airflow.pages import overview_html, table_html
from firnlake.compact import survey
from firnlake.inspect.status import read
from firnlake_expectations.wording import digest
from tests.support.judged import replaced
from tests.support.records import NOW
from tests.support.scenario import Scenario

KEY, VALUE = b"kept-secret-key", b"kept-secret-value"
FORMS = (KEY, VALUE, KEY.hex().encode(), VALUE.hex().encode())
RECORDS = {".parquet", ".avro", ".db"}
"""The table's own files have the records and their bounds, for readers of the table."""


@pytest.mark.parametrize(
    "samples", ["none", *(pytest.param(one, marks=pytest.mark.nightly) for one in ("keys", "full"))]
)
def test_no_output_shows_more_than_it_may(scenario: Scenario, monkeypatch: Any, caplog: Any, samples: str) -> None:
    """Partition 0 fails validation, 1 is refused for two records on one offset, 2 has quarantined records."""
    one = f"{KEY.decode()}={VALUE.decode()}"
    scenario.answer("alone")
    scenario.answer(f"create report.samples={samples}")
    scenario.answer(f"land {one} {one}-1 1/{one} 2/-={VALUE.decode()} z=1 1/z=1 2/z=1 | 1/{one}-2@0")
    replaced(monkeypatch, survey, "latest_per_key", lambda own, codes, offsets, *more: own(codes, -offsets, *more))
    told = scenario.answer("full!")
    for line in ("run {table}", "status {table}", "stages {table}", "quarantine {table} --json", "report"):
        told += scenario.answer(f"firn {line}")
    said = "\n".join(told)
    for part in ("validation failed", "holds different records", "quarantined 1"):
        assert part in said
    lake = scenario.opened.lake
    found = read(lake.home, scenario.name)
    assert found
    pages = [overview_html({found.table: found}, NOW), table_html(found, NOW), caplog.text]
    files = {path: path.read_bytes() for path in lake.home.rglob("*") if path.is_file() and path.suffix not in RECORDS}
    everything = "\n".join([said, *pages]).encode() + b"\n".join([*files.values(), *map(bytes, files)])
    reported = b"\n".join(content for path, content in files.items() if lake.reports_folder in path.parents)
    if samples == "full":
        assert all(secret in reported for secret in (KEY, VALUE))
    else:
        assert [form for form in FORMS if form in everything] == []
        assert (digest([KEY]).encode() in reported) is (samples == "keys")
