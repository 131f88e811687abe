"""The contestants of ``infra.bench.mask`` on a tail of which 1 % is superseded: lane ``mask``, and what Spark does."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from infra.bench import visible
from infra.bench.check import Fingerprint
from infra.bench.entries import Bench
from infra.bench.firn import awake, clock
from infra.bench.inputs import Inputs, local, run_lane
from infra.foreign.files import files_under
from pipeline.lake import Lake
from pipeline.sense import Lane

MASKED = {"firn_mask_max_lag_ms": "60000"}
_NOT_SHUFFLED = {"write_distribution-mode": "none", "write_merge_distribution-mode": "none"}
"""Spark's fastest way for one topic partition."""


@dataclass(frozen=True)
class Ran:
    """One run: wall seconds, bytes of the files that it wrote, and whether readers then see what they should."""

    seconds: float
    data_bytes: int
    metadata_bytes: int
    right: bool


Contestant = Callable[[], Ran]
Scan = Callable[[], float]
"""Reads a table once; returns seconds."""


def measured(
    lake: Lake, identifier: str, wanted: Fingerprint, work: Callable[[], None], by_spark: Bench | None = None
) -> Ran:
    """The figures of ``work`` on a table that shows ``wanted`` afterwards: to PyIceberg, or to Spark where that one
    can't read what the work leaves."""
    root = local(lake.table(identifier).location())
    before = files_under(root)
    started = time.monotonic()
    work()
    seconds = time.monotonic() - started
    new = files_under(root) - before
    data = sum(path.stat().st_size for path in new if path.suffix == ".parquet")
    metadata = sum(path.stat().st_size for path in new if path.suffix != ".parquet")
    if by_spark:
        actual = visible.fingerprint_by_spark(by_spark, lake, identifier)
    else:
        actual = visible.fingerprint(lake.table(identifier))
    return Ran(seconds, data, metadata, actual == wanted)


def sql(bench: Bench, statement: str) -> None:
    """Run a statement in Spark to its end."""
    bench.spark.sql(statement).collect()


def call(bench: Bench, lake: Lake, procedure: str, table: str) -> None:
    """Run one of Iceberg's rewrites in Spark on all files that it can take."""
    sql(bench, f"CALL {lake.name}.system.{procedure}(table => '{table}', options => map('rewrite-all', 'true'))")


@dataclass(frozen=True)
class Hiding:
    """A table whose head supersedes a part of its tail."""

    bench: Bench
    inputs: Inputs

    def contestants(self, peers_only: bool) -> Mapping[str, Contestant]:
        """By name. All but ``rewrite_data_files``, which copies, leave the newest record of each key to readers."""
        lanes = {"firn full": partial(self._lane, Lane.FULL, "spark", {})}
        if not peers_only:
            masks = {"firn mask": "spark", "firn mask, local": "local"}
            lanes = {name: partial(self._lane, Lane.MASK, engine, MASKED) for name, engine in masks.items()} | lanes
        merges = {f"MERGE, {mode}": partial(self._merge, mode) for mode in ("merge-on-read", "copy-on-write")}
        return lanes | merges | {"rewrite_data_files": self._rewrite}

    @contextmanager
    def masked_and_clean(self) -> Iterator[tuple[Mapping[str, Scan], Mapping[str, Scan]]]:
        """Scans, by reader, of the table after lane ``mask`` and after lane ``full``."""
        whole = self.inputs.whole
        with self.inputs.copy("masked", whole, **MASKED) as masked, self.inputs.copy("clean", whole) as clean:
            engine = self.bench.engines["local"]
            run_lane(self.inputs.lake, masked, Lane.MASK, engine, clock())
            run_lane(self.inputs.lake, clean, Lane.FULL, engine, clock())
            yield self._scans(masked), self._scans(clean)

    def _scans(self, identifier: str) -> Mapping[str, Scan]:
        def timed(scan: Callable[[], int]) -> float:
            started = time.monotonic()
            rows = scan()
            assert rows == self.inputs.newest.records, f"{identifier}: {rows} records"
            return time.monotonic() - started

        scans = visible.scans(self.inputs.lake, identifier, self.bench.spark)
        return {reader: partial(timed, scan) for reader, scan in scans.items()}

    def _lane(self, lane: Lane, engine: str, properties: Mapping[str, str]) -> Ran:
        awake(self.bench.engines[engine])
        with self.inputs.copy("hiding", self.inputs.whole, **properties) as table:
            work = partial(run_lane, self.inputs.lake, table, lane, self.bench.engines[engine], clock())
            return measured(self.inputs.lake, table, self.inputs.newest, work)

    def _merge(self, mode: str) -> Ran:
        """Delete every record that one of the head supersedes; the head has landed already, as for lane ``mask``."""
        with self.inputs.copy("peer", self.inputs.whole, write_merge_mode=mode, **_NOT_SHUFFLED) as table:
            name = f"{self.inputs.lake.name}.{table}"
            statement = f"""
                MERGE INTO {name} t USING (
                    SELECT topic, `partition`, `key`, max(`offset`) AS newest FROM {name}
                    WHERE level IS NULL GROUP BY topic, `partition`, `key`) s
                ON t.topic = s.topic AND t.`partition` = s.`partition` AND t.`key` = s.`key` AND t.`offset` < s.newest
                WHEN MATCHED THEN DELETE"""
            return measured(self.inputs.lake, table, self.inputs.newest, partial(sql, self.bench, statement))

    def _rewrite(self) -> Ran:
        with self.inputs.copy("peer", self.inputs.whole) as table:
            work = partial(call, self.bench, self.inputs.lake, "rewrite_data_files", table)
            return measured(self.inputs.lake, table, self.inputs.everything, work)
