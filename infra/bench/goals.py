"""The goals, each with the figure that was measured where it applies. Pure functions of a report."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from infra.bench import results
from infra.bench.data import Shape
from infra.bench.results import DEMO, SENSE, Measurement, Report, Timing

FIRN, FIRN_LOCAL = "firn full", "firn full, local"
"""In a warm session of Spark, and in this process."""
PROCESSES = {"local": "firn run, local", "spark": "firn run, spark"}
"""Whole processes."""
BIN_PACK = ((3e8, 0.75), (1.2e9, 0.65), (3.2e9, 0.6))
"""From so many bytes of keys and values on, at most so many times bin-pack's time."""
BIG_BYTES = 5 * 10**9
MEMORY_BYTES = 4 << 30
MANY_KEYS = 50_000_000
TIMES_LARGER = 10


@dataclass(frozen=True)
class Finding:
    """One goal in one case: what was found, in words, and whether that is enough; ``met`` None: not measured here."""

    goal: str
    case: str
    found: str
    met: bool | None


def findings(report: Report) -> list[Finding]:
    """Every goal in every case where it applies; a goal that no case of ``report`` shows is listed as not measured."""
    outcomes: list[Finding] = []
    for goal, check in _GOALS.items():
        own = [Finding(goal, case, text, met) for case, text, met in check(report)]
        outcomes += own or [Finding(goal, "", "not measured in this run", None)]
    return outcomes


Checked = Iterator[tuple[str, str, bool | None]]
Check = Callable[[Report], Checked]
Applies = Callable[[Shape], bool]


def _bin_pack(report: Report) -> Checked:
    for one, firn, peer in _pairs(report, FIRN, "bin-pack", lambda shape: _half(shape, 1000) and shape.partitions == 1):
        limits = [limit for size, limit in BIN_PACK if one.raw_bytes >= size]
        yield _case(one), _times(firn, peer), firn.seconds / peer.seconds <= limits[-1] if limits else None


def _at_most(times: float, ours: str, peer: str, applies: Applies) -> Check:
    """At most so many times a peer's time."""

    def check(report: Report) -> Checked:
        for one, firn, other in _pairs(report, ours, peer, applies):
            yield _case(one), _times(firn, other), firn.seconds / other.seconds <= times

    return check


def _faster(peer: str, times: float, applies: Applies) -> Check:
    def check(report: Report) -> Checked:
        for one, firn, other in _pairs(report, FIRN, peer, applies):
            ratio = other.seconds / firn.seconds
            yield _case(one), f"{ratio:.1f} × faster ({firn.seconds:.1f} s, {other.seconds:.1f} s)", ratio >= times

    return check


def _seconds(limit: float, name: str, applies: Applies) -> Check:
    def check(report: Report) -> Checked:
        for one in report.measurements:
            firn = one.find(name)
            if firn and applies(one.shape):
                yield _case(one), f"{firn.seconds:.2f} s", firn.seconds <= limit

    return check


def _elsewhere(limit: float, name: str) -> Check:
    def check(report: Report) -> Checked:
        if name in report.elsewhere.seconds:
            yield name, f"{report.elsewhere.seconds[name]:.1f} s", report.elsewhere.seconds[name] <= limit

    return check


def _ratio(limit: float, name: str) -> Check:
    def check(report: Report) -> Checked:
        one = report.elsewhere.ratios.get(name)
        if one:
            yield one.case, one.found, one.times <= limit

    return check


def _rewritten(report: Report) -> Checked:
    for one in report.measurements:
        firn = one.find(FIRN)
        if firn and _clustered(one.shape):
            yield _case(one), f"{firn.tail_replaced:.1%} of the tail's bytes", firn.tail_replaced <= 0.05


def _kafka(report: Report) -> Checked:
    for one, firn, other in _pairs(report, FIRN, "Kafka, zstd", lambda shape: shape.value_bytes == 1000):
        ours, theirs = (one.raw_bytes / 1e6 / timing.seconds / timing.cores for timing in (firn, other))
        yield _case(one), f"{ours / theirs:.2f} × ({ours:.0f} and {theirs:.0f} MB/s per core)", ours >= 0.6 * theirs


def _duckdb(report: Report) -> Checked:
    pairs = list(_pairs(report, FIRN, "DuckDB", lambda _: True))
    big = [pair for pair in pairs if pair[0].raw_bytes >= BIG_BYTES]
    largest = max((pair[0].raw_bytes for pair in pairs), default=0)
    for one, firn, other in big or [pair for pair in pairs if pair[0].raw_bytes == largest]:
        size = f"{one.raw_bytes / 1e9:.1f} GB, files of {one.file_bytes / 1e9:.1f} GB"
        yield _case(one), f"{_times(firn, other)} at {size}", firn.seconds <= other.seconds if big else None


def _compact_room(report: Report) -> Checked:
    for ours in (FIRN, FIRN_LOCAL):
        for one, firn, copy in _pairs(report, ours, "pyarrow copy", lambda _: True):
            seconds = firn.rooms["compact"]
            text = f"{ours}: {seconds / copy.seconds:.2f} × ({seconds:.1f} s, {copy.seconds:.1f} s)"
            yield _case(one), text, seconds <= 1.1 * copy.seconds


def _validation(report: Report) -> Checked:
    for one in report.measurements:
        firn = one.find(FIRN)
        if firn and one.family in ("base", "growth", "large"):
            share = firn.rooms["validate"] / firn.seconds
            yield _case(one), f"{share:.0%} ({firn.rooms['validate']:.1f} of {firn.seconds:.1f} s)", share <= 0.2


def _linear(report: Report) -> Checked:
    series = [
        (one.raw_bytes, firn.seconds)
        for one in report.measurements
        if one.family == "growth" and (firn := one.find(FIRN))
    ]
    if len(series) > 1:
        (small, first), (large, last) = min(series), max(series)
        growth = last / first
        yield "growth", f"{growth:.1f} × the time for {large / small:.1f} × the bytes", growth <= 1.1 * large / small


def _many_keys(report: Report) -> Checked:
    for one in report.elsewhere.memory.values():
        if one.keys >= MANY_KEYS:
            peak = one.peak_bytes + one.peak_jvm_bytes
            text = f"{peak / 2**30:.1f} GiB, {one.seconds:.0f} s, {'exact' if one.exact else 'not exact'}"
            yield one.title, text, one.exact and peak <= MEMORY_BYTES


def _times_larger(report: Report) -> Checked:
    """Of the largest plan: what a process takes for any plan is more than a tenth of a small one."""
    big = [one for one in report.elsewhere.memory.values() if one.raw_bytes >= BIG_BYTES and one.keys < MANY_KEYS]
    if big:
        largest = max(big, key=lambda one: one.raw_bytes)
        times = largest.raw_bytes / largest.peak_bytes
        text = f"{times:.1f} × ({largest.peak_bytes / 1e6:.0f} MB), {'exact' if largest.exact else 'not exact'}"
        yield largest.title, text, largest.exact and times >= TIMES_LARGER


def _half(shape: Shape, value_bytes: int) -> bool:
    uniform = shape.keys == "uniform" and shape.superseded is None and not shape.landed
    return uniform and shape.value_bytes == value_bytes


def _clustered(shape: Shape) -> bool:
    return shape.superseded == 0.01 and shape.keys == "append"


def _large_half(shape: Shape) -> bool:
    return _half(shape, 1000) and shape.partitions == 1


_GOALS: dict[str, Check] = {
    "bin-pack, 1 KB values: at most 0.75 / 0.65 / 0.6 × its time at 0.4 / 1.6 / 5 GB": _bin_pack,
    "bin-pack, 100 B values: at most 1.0 × its time": _at_most(
        1.0, FIRN, "bin-pack", lambda shape: _half(shape, 100) and shape.partitions == 1
    ),
    "bin-pack, 64 topic partitions: at most 0.5 × its time": _at_most(
        0.5, FIRN, "bin-pack", lambda shape: _half(shape, 1000) and shape.partitions == 64
    ),
    "row_number, 1 KB values: at least 2 × faster": _faster("row_number", 2, _large_half),
    "row_number, 100 B values: at least 3 × faster": _faster(
        "row_number", 3, lambda shape: _half(shape, 100) and shape.partitions == 1
    ),
    "row_number, 1 % changed, clustered: at least 6 × faster": _faster("row_number", 6, _clustered),
    "MERGE, 1 % changed, clustered: at least 1.5 × faster": _faster("MERGE", 1.5, _clustered),
    "1 % changed, clustered: at most 5 % of the tail rewritten": _rewritten,
    "DuckDB's QUALIFY at 5 GB: at most 1.0 × its time": _duckdb,
    "Kafka's cleaner, 1 KB values: at least 0.6 × its MB/s per core": _kafka,
    "compact room beside pyarrow's copy: at most 1.1 × its time": _compact_room,
    "validation: at most 20 % of a run": _validation,
    "22 MB in 200 files, process, local: at most 3 s": _seconds(3, PROCESSES["local"], lambda shape: shape.landed > 0),
    "22 MB in 200 files, process, Spark: at most 15 s": _seconds(
        15, PROCESSES["spark"], lambda shape: shape.landed > 0
    ),
    "0.4 GB, process, local: at most 1.5 × DuckDB's": _at_most(1.5, PROCESSES["local"], "DuckDB, process", _large_half),
    "0.4 GB, process, Spark: at most 5 × DuckDB's": _at_most(5, PROCESSES["spark"], "DuckDB, process", _large_half),
    "a job in a warm Spark session: at most 0.8 s": _seconds(0.8, FIRN, lambda shape: shape.records <= 100),
    "make demo, set-up done: at most 75 s": _elsewhere(75, DEMO),
    "first sense of 100,000 segments: at most 5 s": _elsewhere(5, SENSE),
    "cost is linear (×8 bytes within 10 % of ×8 time)": _linear,
    "50 M distinct keys in 4 GiB, exact": _many_keys,
    "a plan 10 × larger than the memory that it takes, exact": _times_larger,
    "mask, 1 % of a tail superseded: bytes at most 0.1 % of a rewrite": _ratio(0.001, results.MASK_WRITES),
    "mask, 1 % of a tail superseded: at most 0.5 × the time of MERGE merge-on-read": _ratio(0.5, results.MASK_TIME),
    "scan of a masked table: at most 1.3 × the time of a clean one": _ratio(1.3, results.MASK_SCAN),
    "lighten, 100 equality delete files: at most 0.2 × the time of rewrite_data_files": _ratio(
        0.2, results.LIGHTEN_TIME
    ),
    "write amplification with masking, space amplification at most 2: at most 1.3": _ratio(
        1.3, results.MASK_AMPLIFICATION
    ),
    "one record per key for readers: at most 60 s after landing": _ratio(60, results.FRESHNESS),
}


def _pairs(report: Report, ours: str, peer: str, applies: Applies) -> Iterator[tuple[Measurement, Timing, Timing]]:
    for one in report.measurements:
        firn, other = one.find(ours), one.find(peer)
        if firn and other and applies(one.shape):
            yield one, firn, other


def _times(firn: Timing, peer: Timing) -> str:
    return f"{firn.seconds / peer.seconds:.2f} × ({firn.seconds:.1f} s, {peer.seconds:.1f} s)"


def _case(one: Measurement) -> str:
    return f"{one.family}: {one.title}, {one.raw_bytes / 1e6:,.0f} MB"
