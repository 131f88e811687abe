"""The table that a scenario drives, with what its commands share: the clock, the folder, and the files it has named."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyiceberg.table.refs import MAIN_BRANCH

import firnlake
from tests.support import row_deletes
from tests.support.records import LOW_THRESHOLDS, NOW, History, Record, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pyiceberg.table import Table

    from firnlake.door import MaintainedTable, OpenCatalog
    from firnlake.iceberg.catalog import Lake

_MASKS: Final = (
    (re.compile(r"\b(20\d{6}T\d{6}\.\d{6}Z-)?[0-9a-f]{16}-[0-9a-f]{8}\b"), "<report>"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<id>"),
    (re.compile(r"(?<= of )20\d\d-\d\d-\d\dT[\d:.]+Z \([^)]* ago\)"), "<time>"),
    (re.compile(r"\b[\d,]{2,} d(?: \d+ h)? ago\b"), "<age> ago"),
    (re.compile(r"( at | from )20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"), r"\1<time>"),
    # A snapshot's id may be as short as what a hash begins with: both have one name.
    (re.compile(r"\b([0-9a-f]{16}|[1-9][0-9]{14,18})\b"), "<id>"),
    # Failures tell the machine's clock.
    (re.compile(r"(?<= failed in )(\w+) at [0-9T:Z-]+"), r"\1 at <time>"),
    (re.compile(r"(?<=segments change, at )[0-9T:.Z-]+(?=, and after)"), "<time>"),
)
_TIME: Final = re.compile(r"\b20\d\d-\d\d-\d\dT[\d:.]+Z")
_numbers = itertools.count()


class TableUnderTest:
    """One table ``db.case<n>`` of ``lake`` with its topic `orders`, and the clock that commands move."""

    opened: OpenCatalog
    table: MaintainedTable
    machine: int | None = None
    """Where the machine's clock stands still, epoch milliseconds; from then on, all times are masked."""

    def __init__(self, opened: OpenCatalog, folder: Path) -> None:
        self.now = NOW
        self.opened = opened
        self.name = f"db.case{next(_numbers)}"
        self.use(opened.lake)
        self.folder = folder
        self.history = History()
        self.made = False
        self.own_columns = False
        self.text: Sequence[str] = ()
        self.planned: list[str] = []
        """The stages that were planned last."""
        self.staged: list[str] = []
        self.named: list[str] = []
        self.marks: list[int] = []
        self.strays: dict[str, Path] = {}
        self.numbers = itertools.count()

    def use(self, lake: Lake) -> None:
        """From here on, the table is the one with its name in ``lake``."""
        self.opened = firnlake.door.OpenCatalog(lake, lambda: self.now, self.opened.engine)
        self.table = self.opened.table(self.name)

    def do_create(self, rest: str) -> Iterable[str]:
        """A table with Kafka's columns; `transactions` with those of producers, ``name=value`` a property of Firn."""
        words = rest.split()
        chosen = {f"firn.{name}": value for name, value in pairs(words)}
        self.table.create(LOW_THRESHOLDS | chosen, transactions="transactions" in words)
        self.made = True
        return ()

    def loaded(self) -> Table:
        """The table as PyIceberg loads it now."""
        return self.opened.lake.catalog.load_table(self.name)

    def rows(self, branch: str = MAIN_BRANCH) -> list[dict[str, Any]]:
        """Every visible row, as PyIceberg reads it, or as the specification says where PyIceberg can't."""
        table = self.loaded()
        ref = table.metadata.refs.get(branch)
        if ref is None:
            return []
        if branch == MAIN_BRANCH and row_deletes.equality_deletes(table):
            found = row_deletes.visible_rows(table)
        else:
            found = table.scan(snapshot_id=ref.snapshot_id).to_arrow().to_pylist()
        return sorted(found, key=lambda row: (row["partition"], row["offset"]))

    def data_files(self) -> list[tuple[Mapping[str, Any], str]]:
        """Metrics and path of each data file of main."""
        table = self.loaded()
        snapshot = table.current_snapshot()
        if snapshot is None or not snapshot.manifests(table.io):
            return []
        return [(row["readable_metrics"], row["file_path"]) for row in table.inspect.data_files().to_pylist()]

    def batches(self, rest: str) -> list[list[Record]]:
        """The records of each commit; the table is made before, unless it was."""
        if not self.made:
            self.do_create("")
        return [self.history.records(batch) for batch in rest.split("|")]

    def foreign_rows(
        self, records: Sequence[Record], level: int | None = None, horizon_us: int | None = None
    ) -> pa.Table:
        """Rows as a writer writes them that knows nothing of Firn's columns, which are NULL, or claims them."""
        rows, schema = rows_of(records), self.loaded().schema().as_arrow()
        for name, value in (("level", level), ("delete_horizon", horizon_us)):
            field = schema.field(name)
            rows = rows.append_column(field, pa.array([value] * len(rows), field.type))
        return rows

    def filled(self, text: str) -> str:
        """``text`` with {table}, {folder}, {home}, {now}, {snapshot}, {stage}, {plans}, {job}, {file 0} filled in."""
        known = {"table": self.name, "folder": self.folder, "home": self.opened.lake.home, "now": self.now}
        known["job"] = next((name.rpartition("/")[2] for name in self.planned), "")
        known["plans"] = " ".join(self.planned)
        known |= {"stage": " ".join(self.staged)} | {f"file {at}": path for at, path in enumerate(self.named)}
        if "{snapshot}" in text:
            known["snapshot"] = self.loaded().metadata.current_snapshot_id
        for name, value in known.items():
            text = text.replace(f"{{{name}}}", str(value))
        return text

    def masked(self, text: str) -> str:
        """``text`` with names in place of what changes from run to run."""
        for at, path in enumerate(self.named):
            text = text.replace(path, f"{{file {at}}}").replace(path.rpartition("/")[2], f"{{name {at}}}")
        text = text.replace(self.name, "{table}").replace(self.name.replace(".", "/"), "{table}")
        text = text.replace(str(self.folder), "{folder}")
        text = text.replace(str(self.opened.lake.home), "{home}")
        text = text.replace(f"/{self.name.replace('.', '/')}/", "/{table}/")
        if self.machine:
            text = _TIME.sub("<time>", text)
        if self.own_columns:
            topic = self.name.partition(".")[2]
            text = re.sub(rf"\b{topic}\b", "{topic}", text)
        for pattern, name in _MASKS:
            text = pattern.sub(name, text)
        return text.rstrip().replace("\n", "\\n")


def pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    """The names and values of the words ``name=value``, without the others."""
    return [(name, value) for word in words for name, equals, value in [word.partition("=")] if equals]


def segment_text(metrics: Mapping[str, Any]) -> str:
    """A data file as level and offsets, ``L0[3-7]``, from its readable metrics."""
    return f"L{lower(metrics, 'level')}[{lower(metrics, 'offset')}-{upper(metrics, 'offset')}]"


def lower(metrics: Mapping[str, Any], column: str) -> int:
    """The lower bound of ``column``; 0 if there is none."""
    return int(metrics[column]["lower_bound"] or 0)


def upper(metrics: Mapping[str, Any], column: str) -> int:
    """The upper bound of ``column``; 0 if there is none."""
    return int(metrics[column]["upper_bound"] or 0)
