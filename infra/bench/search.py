"""Where bloom filters on keys pay when a table is searched for one key (docs/erasure.md).

Two tables with the same records, one of them with bloom filters, are landed, cleaned, maintained and searched: for a
certificate, which knows the key's digest alone, and with the key at hand, as ``firn erase --verify`` does. Keys are
uniform, so that the bounds of every file include the one that is looked for.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np

from firnlake import clock
from firnlake.engine.local import LocalEngine
from firnlake.job.lane import Lane
from firnlake.lanes.erasure.ask import ask
from firnlake.lanes.erasure.certify import verify
from firnlake.lanes.erasure.memory import read_erasures
from firnlake.lanes.erasure.read import KeyMatcher
from firnlake.lanes.erasure.search import search
from firnlake.maintain.maintain import maintain_table
from firnlake.table import records
from infra.bench.check import live
from infra.bench.data import DAY_MS, NOW_MS, Shape, in_order, keys_as_text
from infra.bench.inputs import NAMESPACE, Bench, append_all, drop, run_lane
from infra.bench.measure import Figures, in_turns, measured
from infra.bench.results import Case

TABLES: Final = ((1_000_000, 1000), (5_000_000, 20))
"""Keys at SCALE=1, and bytes of a value."""
WARM_UP_KEYS: Final = 10_000
RUNS: Final = 3
TABLE: Final = f"{NAMESPACE}.searched"
FILTERS: Final = {"write.parquet.bloom-filter-enabled.column.key": "true"}
_KEY: Final = keys_as_text(np.array([7])).tobytes()


def cases(bench: Bench) -> Iterator[Case]:
    """Values of 1 KB, and little more than keys."""
    for number, value_bytes in TABLES:
        keys = int(number * bench.scale)
        shape = Shape(value_bytes, "uniform", None, 1, 0)
        entries = {
            "without filters": partial(_searched, bench, shape, keys, {}),
            "with filters": partial(_searched, bench, shape, keys, FILTERS),
        }
        warm_up = partial(_searched, bench, shape, WARM_UP_KEYS, FILTERS)
        title = f"{keys:,} records with values of {value_bytes:,} B"
        yield Case("search", title, {"keys": keys}, in_turns(entries, RUNS, [warm_up]))


def _searched(bench: Bench, shape: Shape, keys: int, properties: dict[str, str]) -> Figures:
    """Seconds of the clean that wrote the table, and of both searches; bytes of the files."""
    lake, engine = bench.lake, LocalEngine(1)
    drop(lake, TABLE)
    only_main = {"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "1"}
    records.create(lake, TABLE, {"firn.segment.bytes": str(128 << 20), **only_main, **properties})
    append_all(lake, TABLE, shape, in_order(np.random.default_rng(5).permutation(keys)))
    with measured() as writing:
        run_lane(lake, TABLE, Lane.FULL, engine)
    maintain_table(lake, TABLE, clock.now_ms() + 10 * DAY_MS, remove=True)
    ask(lake, TABLE, [[_KEY]], NOW_MS)
    table = lake.table(TABLE)
    erasures = read_erasures(table)
    with measured() as by_digest:
        result = search(table, TABLE, KeyMatcher(erasures.secret, erasures.requests), engine)
    assert result.blockers, "the key is in the table"
    with measured() as by_key:
        verify(lake, TABLE, [_KEY], engine)
    return {
        "seconds": writing["seconds"],
        "by digest": by_digest["seconds"],
        "by key": by_key["seconds"],
        "data": sum(path.stat().st_size for path in live(table)),
    }
