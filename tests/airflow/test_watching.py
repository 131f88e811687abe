"""The triggerer's looks at many tables: what one of them raises is told, and concerns no other."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from firnlake.airflow.watch import Watch
from firnlake.iceberg.catalog import Lake
from firnlake.table import records
from tests.support.lakes import NOW, append, row
from tests.support.tampering import tear_manifest

WATCHED = "watched.orders"


def wrong_property(lake: Lake, table: str) -> None:
    lake.set_properties(table, {"schema.name-mapping.default": "[{"})


@pytest.mark.parametrize("harm", [wrong_property, tear_manifest])
def test_r19_what_one_table_raises_ends_the_watch_of_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: Callable[[Lake, str], None]
) -> None:
    lake, harmed = Lake.embedded(tmp_path), f"watched.{harm.__name__}"
    for table in (harmed, WATCHED):
        records.create(lake, table, {})
        append(lake, [row(0)], table)
    harm(lake, harmed)
    watch = Watch(lake)
    with caplog.at_level(logging.WARNING):
        looks = [watch.look(table, NOW) for table in (harmed, WATCHED, harmed)]
    assert [look and look.table for look in looks] == [None, WATCHED, None]
    (told,) = caplog.records
    assert harmed in told.getMessage()
