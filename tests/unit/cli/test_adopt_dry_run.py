"""adopt: with --dry-run and without, for people and for programs."""

import pytest

from firnlake.cli import show
from firnlake.iceberg.catalog import Lake
from tests.support.adopted import CDC, CDC_SCHEMA, EVENTS, EVENTS_SCHEMA, append, change, event, make
from tests.support.in_process import Firn, refused

OF_CDC = ("adopt", CDC, "--key", "id", "--offset", "lsn", "--tombstone", "op = 'd'")
OF_EVENTS = ("adopt", EVENTS, "--key", "entity", "--offset", "seq", "--topic", "source", "--partition", "shard")
REWRITE = "CALL lake.system.rewrite_data_files(table => 'shop.events', options => map('rewrite-all', 'true'))"


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


def test_a_dry_run_for_people(firn: Firn, lake: Lake, cdc: str) -> None:
    place = lake.table(cdc).metadata_location
    ran = firn(*OF_CDC, "--dry-run")
    assert (ran.code, ran.err) == (0, "")
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert lines[0] == "shop.customers can be adopted; this dry run changes nothing"
    for line in (
        "key id (long)",
        "order lsn (long)",
        "new columns level (int), delete_horizon (timestamptz)",
        "new partition fields level",
        "topic partitions 1: customers-0",
        "segments 2",
        "NULL in lsn none",
        "files left out none",
        "Kafka Connect goes on if it leaves level and delete_horizon NULL",
        "SELECT `lsn`, count(*) FROM lake.shop.customers GROUP BY `lsn` HAVING count(*) > 1",
    ):
        assert line in lines, line
    assert any(line.startswith("repeated offsets at least 2 records in 1 file have the same lsn") for line in lines)
    assert any(line.startswith("MERGE INTO lake.shop.customers t USING (SELECT DISTINCT `lsn`, `id`") for line in lines)
    assert lake.table(cdc).metadata_location == place


def test_a_dry_run_fits_80_columns_but_for_statements(firn: Firn, events: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show.out, "width", 80)
    ran = firn(*OF_EVENTS, "--dry-run")
    wide = [line for line in ran.out.splitlines() if len(line) > 80]
    assert [line.split()[0] for line in wide] == ["SELECT", "files", "CALL"]


def test_a_dry_run_for_programs(firn: Firn, cdc: str) -> None:
    document = firn(*OF_CDC, "--dry-run", "--json").json
    assert (document["dry_run"], document["repeated"], document["segments"]) == (True, False, 2)
    assert (document["columns"]["key"], document["types"]["lsn"]) == (["id"], "long")
    assert document["null_offsets"] == {"records": 0, "files": 0, "unknown": 0}
    (found,) = document["obstacles"]
    assert (found["kind"], found["files"], len(found["spark_sql"])) == ("repeated offsets", 1, 2)
    assert [one["goes_on"] for one in document["writers"]] == [False, False, False, True, True, True]
    adopted = firn(*OF_CDC, "--json").json
    assert adopted.items() <= document.items()


def test_a_dry_run_of_what_can_t_be_adopted(firn: Firn, cdc: str) -> None:
    ran = firn("adopt", cdc, "--key", "nope", "--offset", "lsn", "--dry-run")
    refused(ran, "column nope, mapped as key, does not exist")


def test_a_dry_run_keeps_what_it_is_asked_to_keep(firn: Firn, cdc: str) -> None:
    ran = firn(*OF_CDC, "--keep-partitioning", "--dry-run")
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert "new partition fields none" in lines
    assert "PyIceberg append goes on" in lines
    assert "levels in column level alone, by its bounds in manifests" in lines
    told = " ".join(lines)
    for cost in ("no other tool may rewrite data files", "queries for a level read all manifests", "--drop-columns"):
        assert cost in told.partition("what that costs")[2]
    assert "what that costs" not in firn(*OF_CDC, "--dry-run").out


def test_files_left_out_are_one_line_and_a_statement(firn: Firn, events: str) -> None:
    ran = firn(*OF_EVENTS)
    first, maintenance, second, third, *writers = ran.out.splitlines()
    assert first.startswith("adopted: shop.events, 0 topic partitions, 0 segments; Firn's columns are level and ")
    assert maintenance.endswith(
        "none, as other tools may do it; otherwise: firn config set shop.events maintenance=snapshots,manifests"
    )
    assert second.startswith("shop.events: files left out: 12 files, because the topic partition of their records is ")
    assert second.endswith("rewrite the files with Spark:")
    assert third.strip() == REWRITE
    assert writers[-1].startswith("shop.events: Spark MERGE … INSERT *: breaks: list the table's columns without level")


def test_a_snapshot_with_one_lsn_is_said_when_the_table_is_adopted(firn: Firn, cdc: str) -> None:
    ran = firn(*OF_CDC)
    assert ran.code == 0
    assert "customers: repeated offsets: at least 2 records in 1 file have the same lsn as another record" in ran.out
    assert "WHEN MATCHED THEN UPDATE SET `lsn` = s.firn_number" in ran.out
