"""The catalog applied the commit of a publish but did not say so: what the table needs is not cleared away (C25)."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline import quarantine
from pipeline.errors import OutcomeUnknownError, UnavailableError
from pipeline.lake import Lake
from pipeline.land import land
from pipeline.publish import publish
from pipeline.stage import QUARANTINED, Stage
from tests.support import lakes
from tests.support.lakes import Fates, append, only_plan, ready, row

FORGETFUL = "tests.support.forgetful.ForgetfulCatalog"
BUSY = "tests.support.forgetful.BusyCatalog"


@pytest.fixture
def stage(lake: Lake, table: str) -> Stage:
    append(lake, [row(0, b"a"), row(1, b"b")])
    append(lake, [row(2, b"a")])
    append(lake, [row(3, b"z")])
    return ready(lake, only_plan(lake), [row(1, b"b"), row(2, b"a"), row(3, b"z")], Fates(superseded=1))


def keyless(lake: Lake) -> Stage:
    """One that moves a record without a key to the quarantine."""
    append(lake, [row(0, None, headers=[]), row(1, b"a", headers=[])])
    kept = [row(0, None, headers=[], level=QUARANTINED), row(1, b"a", headers=[])]
    return ready(lake, only_plan(lake), kept, Fates(quarantined=1))


def through(lake: Lake, down: str, catalog: str = FORGETFUL, says: str = "") -> Lake:
    properties = {key: value for key, value in lake.properties.items() if key != "type"}
    return Lake(lake.name, properties | {"py-catalog-impl": catalog, "down": down, "says": says}, lake.home)


@pytest.mark.parametrize("says", ["", "sql"])
def test_c25_a_lost_answer_is_found_out(lake: Lake, stage: Stage, says: str) -> None:
    published = publish(through(lake, "no", says=says), stage.identifier)
    assert not published.repeated
    assert lakes.offsets(lake) == [1, 2, 3]


def test_c25_a_catalog_that_goes_down_leaves_everything(lake: Lake, stage: Stage) -> None:
    with pytest.raises(OutcomeUnknownError):
        publish(through(lake, "yes"), stage.identifier)
    assert lakes.offsets(lake) == [1, 2, 3]
    assert publish(lake, stage.identifier).repeated
    assert lakes.offsets(lake) == [1, 2, 3]


@pytest.mark.parametrize("says", ["", "sql"])
def test_c25_a_landing_without_an_answer_is_not_landed_twice(lake: Lake, table: str, tmp_path: Path, says: str) -> None:
    path = tmp_path / "landed.parquet"
    pq.write_table(lakes.kafka([row(0), row(1)]), path)
    with pytest.raises(OutcomeUnknownError, match="everything is kept"):
        land(through(lake, "no", says=says), table, [path])
    assert lakes.offsets(lake) == [0, 1]


def test_c25_a_table_that_was_registered_without_an_answer_keeps_its_metadata(lake: Lake, table: str) -> None:
    """Asked again, the catalog says that there is such a table: it is this one, and not somebody else's."""
    busy = through(lake, "no", BUSY)
    stage = keyless(busy)
    publish(busy, stage.identifier)
    assert lakes.offsets(lake) == [1]
    assert [one.offset for one in quarantine.records(lake, table, 10)] == [0]


@pytest.mark.parametrize("says", ["", "sql"])
def test_c5_a_hand_over_without_an_answer_loses_nothing(lake: Lake, table: str, says: str) -> None:
    """Its files are the quarantine's by then."""
    stage = keyless(lake)
    with pytest.raises(UnavailableError, match="the connection broke"):
        publish(through(lake, "no", says=says), stage.identifier)
    publish(lake, stage.identifier)
    assert lakes.offsets(lake) == [1]
    assert [one.offset for one in quarantine.records(lake, table, 10)] == [0]
