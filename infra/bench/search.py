"""``make bench-search``: where bloom filters on keys pay when a table is searched for one key (docs/erasure.md).

    python -m infra.bench.search [--keys 1000000] [--value-bytes 1000]

Two tables with the same records, one of them with bloom filters, are landed, cleaned, cared for and searched: for a
certificate, which knows the key's digest alone, and with the key at hand, as ``firn erase --verify`` does. Keys are
uniform, so that the bounds of every file include the one that is looked for.
"""

import argparse
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow.parquet as pq

from infra.bench.data import DAY_MS, NOW_MS, Shape, in_order, keys_as_text
from infra.bench.inputs import append_all, live, run_lane
from pipeline import clock
from pipeline.care import care_table
from pipeline.engine import Engine
from pipeline.engine.local import LocalEngine
from pipeline.erase.ask import ask
from pipeline.erase.stored import read_erasures
from pipeline.lake import Lake, records
from pipeline.prove.search import search
from pipeline.prove.verify import verify
from pipeline.prove.wanted import Wanted
from pipeline.sense import Lane

RUNS: Final = 5
_KEY: Final = keys_as_text(np.array([7])).tobytes()


def main() -> int:
    """Entry point; see --help."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench.search", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=1000)
    parser.add_argument("--home", type=Path, default=Path(".firn", "bench"))
    arguments = parser.parse_args()
    home: Path = arguments.home.resolve() / "search"
    shutil.rmtree(home, ignore_errors=True)
    try:
        lake = Lake.embedded(home)
        lake.create_namespace("bench")
        shape = Shape(arguments.value_bytes, "uniform", None, 1, 0)
        filters = {"write.parquet.bloom-filter-enabled.column.key": "true"}
        _measured(lake, "bench.warm", filters, shape, 10_000)
        for name, properties in (("plain", {}), ("filtered", filters)):
            print(_measured(lake, f"bench.{name}", properties, shape, arguments.keys), flush=True)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return 0


def _measured(lake: Lake, table: str, properties: dict[str, str], shape: Shape, keys: int) -> str:
    only_main = {"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "1"}
    records.create(lake, table, {"firn.segment.bytes": str(128 << 20), **only_main, **properties})
    append_all(lake, table, shape, in_order(np.random.default_rng(5).permutation(keys)))
    engine = LocalEngine(1)
    writing = _seconds(lambda: run_lane(lake, table, Lane.FULL, engine))
    care_table(lake, table, clock.now_ms() + 10 * DAY_MS, remove=True)
    ask(lake, table, [[_KEY]], NOW_MS)
    digests = statistics.median(_seconds(lambda: _search(lake, table, engine)) for _ in range(RUNS))
    key = statistics.median(_seconds(lambda: verify(lake, table, [_KEY], engine)) for _ in range(RUNS))
    files, size, key_bytes = _written(lake, table)
    return (
        f"{table}: {keys:,} keys, {files} files of {size / 1e6:,.1f} MB, their keys {key_bytes / 1e6:.1f} MB; "
        f"cleaned in {writing:.2f} s, searched by digest in {digests:.2f} s, by key in {key:.3f} s"
    )


def _search(lake: Lake, name: str, engine: Engine) -> None:
    table = lake.table(name)
    erasures = read_erasures(table)
    result = search(table, name, Wanted(erasures.secret, erasures.requests), engine)
    assert result.blockers, "the key is in the table"


def _written(lake: Lake, name: str) -> tuple[int, int, int]:
    """Number and bytes of main's files, and bytes of their key columns."""
    paths = live(lake, name)
    keys = 0
    for path in paths:
        footer = pq.read_metadata(path)
        for group in map(footer.row_group, range(footer.num_row_groups)):
            chunks = map(group.column, range(group.num_columns))
            keys += sum(one.total_compressed_size for one in chunks if one.path_in_schema == "key")
    return len(paths), sum(path.stat().st_size for path in paths), keys


def _seconds(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


if __name__ == "__main__":
    sys.exit(main())
