"""A large topic partition is cleaned by a process of its own, whose memory is watched.

With small values keys are what memory is needed for; with large ones a plan can be many times larger than the memory
that it gets. Nothing was cleaned before; a fifth as many updates as keys come on top. The result has to be exact.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np

from firnlake.table import records
from infra.bench.check import fingerprint, live, same
from infra.bench.data import KEY_BYTES, NOW_MS, Shape, Stream, in_order
from infra.bench.inputs import NAMESPACE, Bench, append_all, drop, kept_by_full
from infra.bench.measure import Figures, Share, in_turns, measured
from infra.bench.results import Case
from infra.bench.whole import firn

TABLE: Final = f"{NAMESPACE}.memory"
PLANS: Final = ((50_000_000, 8), (20_000_000, 1000))
"""Keys at SCALE=1, and bytes of a value."""


def cases(bench: Bench) -> Iterator[Case]:
    """Many keys, and many bytes."""
    for number, value_bytes in PLANS:
        keys = int(number * bench.scale)
        rng = np.random.default_rng(5)
        one = in_order(np.concatenate([rng.permutation(keys), rng.integers(0, keys, keys // 5)]))
        raw = len(one) * (KEY_BYTES + value_bytes)
        run = partial(_cleaned, bench, Shape(value_bytes, "uniform", None, 1, 0), one)
        facts = {"keys": keys, "records": len(one), "raw bytes": raw, "value bytes": value_bytes}
        title = f"{keys:,} keys, {raw / 1e9:.1f} GB of keys and values"
        yield Case("memory", title, facts, in_turns({"firn run": run}, 1))


def _cleaned(bench: Bench, shape: Shape, one: Stream) -> Figures:
    """Land the records, run a full clean, compare."""
    drop(bench.lake, TABLE)
    records.create(bench.lake, TABLE, {"firn.segment.bytes": str(128 << 20)})
    append_all(bench.lake, TABLE, shape, one)
    wanted = fingerprint(live(bench.lake.table(TABLE)), kept_by_full(one))
    with measured(Share.OWN) as figures:
        firn(bench.lake, "run", TABLE, "--lane", "full", "--force", "--now", str(NOW_MS), cores=bench.cores)
    same(fingerprint(live(bench.lake.table(TABLE))), wanted)
    return figures | {"peak of all": figures["peak"] + figures["peak of JVM"]}
