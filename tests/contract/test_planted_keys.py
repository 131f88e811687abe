"""C30: there is no certificate while a file or a reference of the table holds the key; without one, there soon is."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from firnlake import clock
from firnlake.engine.engine import Engine
from firnlake.iceberg.catalog import Lake
from firnlake.table.records import PARTITION_FIELDS
from infra.environment import environment
from tests.support import foreign_tables
from tests.support.commands import Firn, Ran, command
from tests.support.plants import KEY, TABLE, TIME_MS, Place, Site, parquet, rows
from tests.support.templates import Templates
from tests.support.topics import DAY, Record, Topic

Plant = Callable[[Site], None]
KINDS: Sequence[tuple[str, str, Plant]] = (
    # main branch tombstones tag snapshot spec beside outside left: x in every run, n every night, - makes no sense
    ("x n n n n n n n n", "landed record", lambda site: site.plant(rows())),
    ("- x n n n - n - -", "record past main's log end", lambda site: site.plant(rows(1000))),
    ("- n n x n - n - -", "record of a topic partition not on main", lambda site: site.plant(rows(partition=7))),
    ("- - - n n n n n n", "stray file of two topic partitions", lambda site: site.plant(rows() + rows(partition=7))),
    ("n n - n - - n - -", "record of no topic partition", lambda site: site.plant(rows(partition=None, topic=None))),
    ("n - - n - - - n -", "file listed twice", lambda site: site.plant(rows(), times=2)),
    ("n n - n - n n n -", "Avro data file", Site.avro),
    ("n - - x - - n n -", "cut Parquet", lambda site: site.plant(rows(), content=parquet(site.arrow(rows()))[:-100])),
    ("n - - n - - n n -", "Parquet without field ids", Site.without_ids),
    ("- n - n - n n - -", "file partitioned by the key", Site.by_key),
    ("n n - n n - n n -", "equality delete file", Site.equality_delete),
    ("n n - n - - n - -", "position delete file with rows", Site.position_delete),
    ("n n - x - - n n -", "Puffin statistics with values", Site.puffin),
    ("x - - n - - n - -", "truncated Puffin statistics", lambda site: site.puffin(40)),
    ("n - - n - - n x -", "partition statistics", Site.partition_statistics),
    ("x n - n - - n - -", "bounds of a removed file", Site.bounds),
    ("- - - - - - x - -", "text, gzip and hidden files", Site.unknown_files),
    ("- - - - - - x - -", "stage document with a sample", Site.stage_document),
)
CDC = "shop.customers"
LATE = [plant for _, _, plant in KINDS[10:]]
"""Planted when lane `erase` has run, which some of them would make wait; the others are planted before the request."""
CELLS = [
    pytest.param(plant, place, id=f"{kind}, {place}", marks=[pytest.mark.nightly] if mark == "n" else [])
    for marks, kind, plant in KINDS
    for place, mark in zip(Place, marks.split(), strict=True)
    if mark != "-"
]


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    return Templates(tmp_path_factory.mktemp("planted"))


@pytest.fixture
def firn(templates: Templates, monkeypatch: pytest.MonkeyPatch) -> Firn:
    for name, value in environment(templates.empty()).items():
        monkeypatch.setenv(name, value)
    return command


def landed(lake: Lake, engine: Engine) -> None:
    """A table with one topic, in which the key is not; once it was partitioned by nothing, and once by the key."""
    topic = Topic(lake, engine, TABLE).create(erase_history="expire")
    for before, after in ((PARTITION_FIELDS, ()), ((), ("key",)), (("key",), PARTITION_FIELDS)):
        with lake.table(TABLE).update_spec() as update:
            for name in before:
                update.remove_field(name)
            for name in after:
                update.add_identity(name)
    topic.land(*(records(b"a", b"b", b"z", start=start) for start in (10, 20)))


def records(*keys: bytes, start: int) -> list[Record]:
    return [Record(offset, key, b"1", 0, TIME_MS) for offset, key in enumerate(keys, start)]


def erased(firn: Firn, table: str = TABLE, key: str = KEY.decode()) -> None:
    """Three days ago, somebody requested to erase the key within four days: since yesterday, history may expire."""
    asked = firn("erase", table, "--key", key, "--within", "4d", "--now", clock.now_ms() - 3 * DAY)
    assert asked.code == 0, asked.err
    firn("run", table, "--lane", "erase", "--force")


def certified(firn: Firn, table: str = TABLE) -> tuple[list[Path], Ran]:
    """The certificates that maintenance or the command itself has issued, and what the command says."""
    firn("maintain", table)
    answer = firn("erase", table, "--certify", "--json")
    return list(Lake.load().home.glob("reports/erasures/**/*.json")), answer


@pytest.mark.parametrize(("plant", "place"), CELLS)
def test_c30_a_planted_key_is_named_or_gone(
    firn: Firn, templates: Templates, engine: Engine, tmp_path: Path, plant: Plant, place: Place
) -> None:
    site = Site(lake := Lake.load(), place, tmp_path / "elsewhere")
    templates.step(lake, "landed", lambda lake: landed(lake, engine))
    if plant in LATE:
        templates.step(lake, "erased", lambda _: erased(firn))
        plant(site)
    else:
        plant(site)
        erased(firn)
    if place is Place.LEFT:
        site.forget()
    issued, answer = certified(firn)
    if held := site.holders():
        assert not issued, f"certified, and the key is in {held}"
        assert (answer.code, answer.json["issued"]) == (1, []), f"nothing is said, and the key is in {held}"
        unnamed = [path for path in held & set(site.written) or held if path.name not in answer.out]
        assert not unnamed or (site.reference and site.reference in answer.out), answer
    else:
        assert issued or certified(firn)[0], f"no file holds the key: {answer}"


@pytest.mark.parametrize(("columns", "key"), [("id", "4711"), ("id,region", "4711,emea")])
def test_c30_a_planted_key_of_other_types_is_named(firn: Firn, columns: str, key: str) -> None:
    settings = "firn.erase.history=expire firn.maintenance=manifests,snapshots"
    foreign_tables.create(lake := Lake.load(), CDC, f"id=long! region=string op=string! lsn=long ; {settings}")
    foreign_tables.append(lake.table(CDC), "id=1 region=emea op=u lsn=10")
    firn("adopt", CDC, "--key", columns, "--offset", "lsn", "--tombstone", "op = 'd'")
    table = lake.table(CDC)
    table.manage_snapshots().create_branch(table.snapshots()[-1].snapshot_id, "audit").commit()
    planted = [{"id": 4711, "region": "emea", "op": "u", "lsn": 1000}]
    table.append(pa.Table.from_pylist(planted, schema=table.schema().as_arrow()), branch="audit")
    erased(firn, CDC, key)
    issued, answer = certified(firn, CDC)
    assert (issued, answer.code, "audit" in answer.out) == ([], 1, True), answer
