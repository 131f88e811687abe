"""Tables with requests to erase keys in which main holds no such record any more, made without lane `erase`."""

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake import clock
from firnlake.engine.local import LocalEngine
from firnlake.iceberg.branches import ERASURES
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import Commit
from firnlake.iceberg.deleter import Finding
from firnlake.iceberg.files import job_folder
from firnlake.iceberg.parquet import ParquetFileWriter, WriteOptions
from firnlake.lanes.erasure.ask import Asked, ask
from firnlake.lanes.erasure.memory import ErasuresChange, read_erasures
from firnlake.lanes.erasure.read import KeyMatcher
from firnlake.lanes.erasure.requests import Destroyed, Erasures, SearchProgress
from firnlake.lanes.erasure.search import SearchResult, search
from firnlake.maintain.inventory import Blocker
from firnlake.maintain.maintain import maintain_table
from infra.foreign.files import on_disk
from tests.support.committing import commit
from tests.support.lakes import TABLE, Row, stored

if TYPE_CHECKING:
    from firnlake.iceberg.branch_snapshot import BranchChange

ENGINE = LocalEngine(1)
DAY_MS = 86_400_000
JOB = "0123456789abcdef"
"""A job of Firn's, in whose folder the files are written."""
HEAD, OLDER = ("head", "main"), ("snapshot", "older than the head of branch main")
"""Kind and name of blockers: main itself, and its history."""


def request(lake: Lake, *keys: bytes, now_ms: int | None = None, within_ms: int = 30 * DAY_MS) -> Asked:
    """Request ``keys`` now, or at ``now_ms``."""
    return ask(lake, TABLE, [[key] for key in keys], clock.now_ms() if now_ms is None else now_ms, None, within_ms)


def known(lake: Lake) -> Erasures:
    return read_erasures(lake.table(TABLE))


def erase(lake: Lake, *keys: bytes) -> list[str]:
    """Take the records of ``keys`` from main, as lane `erase` does, for all requests; the files that are gone."""
    table, erasures = lake.table(TABLE), known(lake)
    gone: list[Destroyed] = []
    added: list[DataFile] = []
    for task in table.scan().plan_files():
        path = on_disk(task.file.file_path)
        rows = pq.read_table(path, partitioning=None).to_pylist()
        kept = [one for one in rows if one["key"] not in keys]
        if len(kept) < len(rows):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            topic, partition = rows[0]["topic"], rows[0]["partition"]
            through = max(erasures.ids)
            gone.append(
                Destroyed(
                    topic,
                    partition,
                    through,
                    0,
                    task.file.file_path,
                    task.file.file_size_in_bytes,
                    digest,
                    len(rows) - len(kept),
                )
            )
            added += write(table, kept)
    head = table.current_snapshot()
    number = (head.sequence_number or 0) if head else 0

    def progress(old: Erasures) -> Erasures:
        done = [
            SearchProgress(place.topic, place.partition, erasures.of(place)[-1].id, None, number, prepared.snapshot_id)
            for place in erasures.topic_partitions
        ]
        return old.with_progress(done, [replace(one, snapshot_id=prepared.snapshot_id) for one in gone])

    changes: dict[str, BranchChange] = {
        MAIN_BRANCH: Change([one.path for one in gone], added),
        ERASURES: ErasuresChange(progress),
    }
    prepared = Commit(table, changes.items())
    commit(lake, prepared)
    return [one.path for one in gone]


def write(table: Table, rows: Sequence[Row]) -> list[DataFile]:
    """A data file with ``rows`` of one topic partition and level, in Firn's folder; none without rows."""
    if not rows:
        return []
    partition = (rows[0]["topic"], rows[0]["partition"], rows[0].get("level"))
    output = table.io.new_output(f"{job_folder(table, JOB)}/{uuid.uuid4()}.parquet")
    writer = ParquetFileWriter(output, WriteOptions(table.schema(), dict(table.properties)), partition)
    for batch in stored(rows).cast(schema_to_pyarrow(table.schema())).to_batches():
        writer.write(batch)
    return [writer.close().data_file(table.spec().spec_id)]


def searched(lake: Lake) -> SearchResult:
    """The result of an exact search for all requests."""
    erasures = known(lake)
    return search(lake.table(TABLE), TABLE, KeyMatcher(erasures.secret, erasures.requests), ENGINE)


def blockers(lake: Lake, number: int = 1) -> dict[tuple[str, str], Blocker]:
    """What the search finds in the way of request ``number``, by kind and name."""
    return {(one.kind, one.name): one for one in searched(lake).of(number)}


def expire(lake: Lake) -> list[Finding]:
    """Maintenance as if everything were old: only heads, tags and branches stay."""
    limits = {"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "1"}
    lake.set_properties(TABLE, limits)
    return maintain_table(lake, TABLE, clock.now_ms() + 10 * DAY_MS, remove=True)
