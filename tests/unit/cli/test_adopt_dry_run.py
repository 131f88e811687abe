"""adopt: with --dry-run and without, for people and for programs."""

import pytest

from firnlake.cli import show
from firnlake.iceberg.catalog import Lake
from tests.support.adopted import CDC, CDC_SCHEMA, EVENTS, EVENTS_SCHEMA, append, change, event, make
from tests.support.in_process import Firn, Ran, refused

OF_CDC = ("adopt", CDC, "--key", "id", "--offset", "lsn", "--tombstone", "op = 'd'")
OF_EVENTS = ("adopt", EVENTS, "--key", "entity", "--offset", "seq", "--topic", "source", "--partition", "shard")

WRITERS = (
    "leave level and delete_horizon NULL; Spark's INSERT … VALUES and MERGE … INSERT * must list the other columns; "
    "PyIceberg's append needs column level, all NULL"
)


@pytest.fixture
def cdc(lake: Lake) -> str:
    """A snapshot of three records with one LSN, and a change."""
    make(lake, CDC, CDC_SCHEMA)
    append(lake, CDC, *(change(700, id_) for id_ in range(3)))
    append(lake, CDC, change(701))
    return CDC


@pytest.fixture
def events(lake: Lake) -> str:
    """Twelve files, each of two topic partitions."""
    make(lake, EVENTS, EVENTS_SCHEMA)
    for number in range(12):
        append(lake, EVENTS, event(number), event(number, shard=1))
    return EVENTS


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show.out, "width", 1000)


def lines(ran: Ran) -> list[str]:
    return [" ".join(line.split()) for line in ran.out.splitlines()]


def test_a_dry_run_for_people(firn: Firn, lake: Lake, cdc: str) -> None:
    before = lake.table(cdc).metadata_location
    ran = firn(*OF_CDC, "--dry-run")
    assert (ran.code, ran.err) == (0, "")
    first, *rows = lines(ran)
    assert first == "shop.customers can be adopted; this dry run changes nothing"
    (repeated,) = [
        row for row in rows if row.startswith("repeated lsn in 1 segment; the first: customers-0 L0 [700..700] ")
    ]
    assert repeated.endswith(
        "with 3 records. Copies of one record do no harm; different records make their topic partition wait"
    )
    rows.remove(repeated)
    assert rows == [
        "topic partitions 1: customers-0",
        "segments 2",
        "left out none",
        "new columns level, delete_horizon",
        "partitioned by level",
        f"writers {WRITERS}",
        "maintenance none, as other tools may do it: firn config set shop.customers maintenance=snapshots,manifests",
    ]
    assert lake.table(cdc).metadata_location == before
    done = lines(firn(*OF_CDC))
    assert done[0] == "adopted: shop.customers"
    assert sorted(done[1:]) == sorted([*rows, repeated])
    assert lines(firn(*OF_CDC))[0] == "already adopted: shop.customers"
    assert lines(firn(*OF_CDC, "--dry-run"))[0] == "shop.customers is already adopted; this dry run changes nothing"


def test_a_dry_run_fits_80_columns(firn: Firn, events: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show.out, "width", 80)
    ran = firn(*OF_EVENTS, "--dry-run")
    assert [line for line in ran.out.splitlines() if len(line) > 80] == []


def test_a_dry_run_for_programs(firn: Firn, cdc: str) -> None:
    document = firn(*OF_CDC, "--dry-run", "--json").json
    assert (document["dry_run"], document["repeated"], document["segments"]) == (True, False, 2)
    assert (document["columns"]["key"], document["topic_partitions"]) == (["id"], ["customers-0"])
    assert (document["left_out"], document["waiting"], len(document["repeated_offsets"])) == ([], [], 1)
    assert firn(*OF_CDC, "--json").json == document | {"dry_run": False}


def test_a_dry_run_of_what_can_t_be_adopted(firn: Firn, cdc: str) -> None:
    ran = firn("adopt", cdc, "--key", "nope", "--offset", "lsn", "--dry-run")
    refused(ran, "column nope, mapped as key, does not exist")


def test_a_dry_run_keeps_what_it_is_asked_to_keep(firn: Firn, cdc: str) -> None:
    rows = lines(firn(*OF_CDC, "--keep-partitioning", "--dry-run"))
    assert "partitioned by what it was" in rows
    (writers,) = [row for row in rows if row.startswith("writers ")]
    assert writers.endswith("; no tool but Firn may rewrite data files")


def test_files_left_out_are_one_row(firn: Firn, events: str) -> None:
    rows = lines(firn(*OF_EVENTS))
    assert rows[1:3] == ["topic partitions 0", "segments 0"]
    assert rows[3].startswith("left out 12 files; the first: segment ")
    assert "was written under partition spec 0 and may hold several topic partitions; allowed: a file" in rows[3]
    assert any(
        row.endswith("if source or shard is a new partition field, restart Flink and Kafka Connect") for row in rows
    )


def test_segments_that_wait_are_one_row(firn: Firn, lake: Lake) -> None:
    make(lake, CDC, CDC_SCHEMA)
    append(lake, CDC, change(1), change(2) | {"lsn": None})
    (row,) = [row for row in lines(firn(*OF_CDC, "--dry-run")) if row.startswith("waiting ")]
    assert row.startswith(
        "waiting 1 segment, with their topic partitions; the first: segment customers-0 L0 [offsets unk"
    )
    assert "has NULLs in column lsn (1 of 2); allowed: none" in row
