"""A dry run of `firn adopt` changes nothing, and says what the adoption then does."""

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StructType

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Adoption, Choice, adopt, preview
from firnlake.ingest.release import release
from tests.support import lakes
from tests.support.adopted import (
    BY_ENTITY,
    BY_ID,
    CDC,
    CDC_SCHEMA,
    EVENTS,
    EVENTS_SCHEMA,
    append,
    change,
    event,
    make,
    validated,
)
from tests.support.foreign import append_again
from tests.support.publishing import publish
from tests.support.row_deletes import delete_at, places

KEPT = Choice(("id",), "lsn", tombstone="op = 'd'", keep_partitioning=True)


def looked(lake: Lake, identifier: str, choice: Choice) -> Adoption:
    """The preview, after which the table is what it was."""
    before = lake.table(identifier)
    seen = preview(lake, identifier, choice, {"firn.segment.bytes": "9"})
    after = lake.table(identifier)
    assert after.metadata_location == before.metadata_location
    assert after.metadata == before.metadata
    return seen


class TestTheAdoptionDoesWhatThePreviewSays:
    """The same columns, properties, topic partitions, segments and files left out."""

    @pytest.fixture(params=["cdc", "kept", "upserts", "events", "split", "released", "adopted"])
    def case(self, request: pytest.FixtureRequest, lake: Lake) -> tuple[str, Choice]:
        match request.param:
            case "events" | "split":
                fields = [PartitionField(1, 1000, IdentityTransform(), "source")] if request.param == "split" else []
                make(lake, EVENTS, EVENTS_SCHEMA, *fields)
                append(lake, EVENTS, event(0), event(1, source="app"), event(2, shard=1))
                append(lake, EVENTS, event(3))
                return EVENTS, BY_ENTITY
            case name:
                more = {"write_upsert_enabled": "true"} if name == "upserts" else {}
                make(lake, CDC, CDC_SCHEMA, **more)
                append(lake, CDC, change(1), change(2))
                append(lake, CDC, change(3))
        if name in {"released", "adopted"}:
            adopt(lake, CDC, BY_ID)
            publish(lake, validated(lake, CDC))
        if name == "released":
            release(lake, CDC)
        return CDC, KEPT if name == "kept" else BY_ID

    def test_and_the_preview_changes_nothing(self, lake: Lake, case: tuple[str, Choice]) -> None:
        identifier, choice = case
        files = set(lake.home.rglob("*"))
        seen = looked(lake, identifier, choice)
        assert {path for path in set(lake.home.rglob("*")) - files if path.suffix != ".db-journal"} == set()
        done = adopt(lake, identifier, choice, {"firn.segment.bytes": "9"})
        assert (seen.repeated, seen.columns) == (done.repeated, done.columns)
        assert list(seen.segments) == list(done.segments)
        assert seen.segments.strays == done.segments.strays
        assert seen.properties == done.properties == lake.table(identifier).properties

    @pytest.mark.parametrize(
        "choice",
        [Choice(("nope",), "lsn"), Choice(("id",), "ts"), Choice(("id",), "lsn", topic="region", partition="op")],
    )
    def test_c26_the_refusal_is_that_of_the_adoption(self, lake: Lake, cdc: str, choice: Choice) -> None:
        with pytest.raises(RefusedError) as by_preview:
            preview(lake, cdc, choice, {})
        with pytest.raises(RefusedError) as by_adoption:
            adopt(lake, cdc, choice)
        assert str(by_preview.value) == str(by_adoption.value)


def test_a_segment_with_null_offsets_waits(lake: Lake, cdc: str) -> None:
    append(lake, cdc, change(1), change(2) | {"lsn": None}, change(3) | {"lsn": None})
    append(lake, cdc, change(4))
    (problem,) = [one.problem for one in looked(lake, cdc, BY_ID).segments if one.problem]
    assert "has NULLs in column lsn (2 of 3); allowed: none" in problem


class TestRepeatedOffsets:
    """Proved by a file with more records than there are offsets between its bounds."""

    def test_a_snapshot_with_one_lsn(self, lake: Lake, cdc: str) -> None:
        append(lake, cdc, *(change(700, id_) for id_ in range(5)))
        append(lake, cdc, *(change(700, id_) for id_ in range(5, 8)), change(701))
        append(lake, cdc, change(702), change(709))
        found = looked(lake, cdc, BY_ID).with_repeated_offsets()
        assert sorted((one.base_offset, one.last_offset, one.records) for one in found) == [
            (700, 700, 5),
            (700, 701, 4),
        ]

    def test_offsets_of_other_topic_partitions_are_others(self, lake: Lake, events: str) -> None:
        append(lake, events, event(1), event(1, shard=1), event(1, source="app"))
        assert looked(lake, events, BY_ENTITY).with_repeated_offsets() == []

    def test_a_file_that_is_listed_twice_has_copies(self, lake: Lake, cdc: str) -> None:
        append(lake, cdc, change(1), change(2))
        append_again(lake, lakes.paths(lake.table(cdc)).pop(), identifier=cdc)
        assert looked(lake, cdc, BY_ID).with_repeated_offsets() == []

    def test_records_that_deletes_may_hide_prove_nothing(self, lake: Lake, cdc: str) -> None:
        append(lake, cdc, change(7, 1), change(7, 2))
        ((path, _),) = places(lake, cdc, [7], "lsn").items()
        assert len(looked(lake, cdc, BY_ID).with_repeated_offsets()) == 1
        delete_at(lake, cdc, {path: [0]})
        assert looked(lake, cdc, BY_ID).with_repeated_offsets() == []

    def test_the_widest_range_of_offsets(self, lake: Lake, cdc: str) -> None:
        append(lake, cdc, change(0), change(2**63 - 1))
        assert looked(lake, cdc, BY_ID).with_repeated_offsets() == []


class TestWriters:
    """What docs/operations.md says of PyIceberg, PyIceberg does."""

    @pytest.mark.parametrize("upserts", [False, True])
    @pytest.mark.parametrize("choice", [BY_ID, KEPT])
    def test_an_append_of_the_same_columns(self, lake: Lake, choice: Choice, upserts: bool) -> None:
        make(lake, CDC, CDC_SCHEMA, **({"write_upsert_enabled": "true"} if upserts else {}))
        rows = pa.Table.from_pylist([change(1)], schema=CDC_SCHEMA.as_arrow())
        lake.table(CDC).append(rows)
        adopt(lake, CDC, choice)
        if not (choice.keep_partitioning or upserts):
            with pytest.raises(KeyError, match='Field "level" does not exist in schema'):
                lake.table(CDC).append(rows)
            rows = rows.append_column("level", pa.nulls(len(rows), pa.int32()))
        lake.table(CDC).append(rows)
        assert lake.table(CDC).scan().to_arrow()["level"].to_pylist() == [None, None]

    def test_topic_and_partition_as_new_partition_fields(self, lake: Lake, events: str) -> None:
        adopt(lake, events, BY_ENTITY)
        rows = pa.Table.from_pylist([event(1)], schema=EVENTS_SCHEMA.as_arrow())
        lake.table(events).append(rows.append_column("level", pa.nulls(1, pa.int32())))
        assert lake.table(events).scan().to_arrow().num_rows == 1


def test_c26_nested_columns_and_times(lake: Lake) -> None:
    nested = NestedField(9, "source", StructType(NestedField(10, "lsn", LongType())))
    make(lake, CDC, Schema(*CDC_SCHEMA.fields, nested))
    with pytest.raises(
        RefusedError, match=r"column source\.lsn, mapped as offset, is nested, and nested columns are not"
    ):
        adopt(lake, CDC, Choice(("id",), "source.lsn"))
    with pytest.raises(RefusedError, match="column ts can't be the offset: it is timestamp, and two changes may have"):
        adopt(lake, CDC, Choice(("id",), "ts"))
