"""The goals, each with the figure that was measured where it applies. Pure functions of a report."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.bench.data import Shape
from tests.bench.results import Measurement, Report, Timing

FIRN = "firn full"
BIG_BYTES = 5 * 10**9
"""From so many bytes of keys and values on, Firn should not be slower than DuckDB."""
HEAP_BYTES = 4 << 30
MANY_KEYS = 50_000_000


@dataclass(frozen=True)
class Finding:
    """One goal in one case: what was found, in words, and whether that is enough; ``met`` None: not measured here."""

    goal: str
    case: str
    found: str
    met: bool | None


def findings(report: Report) -> list[Finding]:
    """Every goal in every case where it applies; a goal that no case of ``report`` shows is listed as not measured."""
    found: list[Finding] = []
    for goal, check in _GOALS.items():
        own = [Finding(goal, case, text, met) for case, text, met in check(report)]
        found += own or [Finding(goal, "", "not measured in this run", None)]
    return found


Checked = Iterator[tuple[str, str, bool | None]]


def _bin_pack(report: Report) -> Checked:
    for one, firn, peer in _pairs(report, "bin-pack", _half):
        ratio = firn.seconds / peer.seconds
        yield _case(one), f"{ratio:.2f} × ({firn.seconds:.1f} s, {peer.seconds:.1f} s)", ratio <= 1


def _faster(peer: str, times: float, applies: Callable[[Shape], bool]) -> Callable[[Report], Checked]:
    def check(report: Report) -> Checked:
        for one, firn, other in _pairs(report, peer, applies):
            ratio = other.seconds / firn.seconds
            yield _case(one), f"{ratio:.1f} × ({firn.seconds:.1f} s, {other.seconds:.1f} s)", ratio >= times

    return check


def _rewritten(report: Report) -> Checked:
    for one in report.measurements:
        firn = one.find(FIRN)
        if firn and one.shape.superseded == 0.01 and one.shape.keys == "append":
            yield _case(one), f"{firn.tail_replaced:.1%} of the tail's bytes", firn.tail_replaced <= 0.05


def _kafka(report: Report) -> Checked:
    for peer in ("Kafka, zstd", "Kafka, uncompressed"):
        for one, firn, other in _pairs(report, peer, lambda _: True):
            ours, theirs = (one.raw_bytes / 1e6 / timing.seconds / timing.cores for timing in (firn, other))
            alone = one.raw_bytes / 1e6 / other.processor
            text = f"{ours:.0f} MB/s per core; {peer}: {theirs:.0f} (of processor time alone {alone:.0f})"
            yield _case(one), text, ours >= theirs


def _duckdb(report: Report) -> Checked:
    pairs = list(_pairs(report, "DuckDB", lambda _: True))
    big = [pair for pair in pairs if pair[0].raw_bytes >= BIG_BYTES]
    largest = max((pair[0].raw_bytes for pair in pairs), default=0)
    for one, firn, other in big or [pair for pair in pairs if pair[0].raw_bytes == largest]:
        ratio = firn.seconds / other.seconds
        size = f"{one.raw_bytes / 1e9:.1f} GB, files of {one.file_bytes / 1e9:.1f} GB"
        text = f"{ratio:.2f} × ({firn.seconds:.1f} s, {other.seconds:.1f} s) at {size}"
        yield _case(one), text, ratio <= 1 if big else None


def _validation(report: Report) -> Checked:
    for one in report.measurements:
        firn = one.find(FIRN)
        if firn and one.family in ("base", "growth"):
            share = firn.rooms["validate"] / firn.seconds
            yield _case(one), f"{share:.0%} ({firn.rooms['validate']:.1f} of {firn.seconds:.1f} s)", share <= 0.15


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


def _memory(report: Report) -> Checked:
    one = report.memory
    if one:
        enough = one.exact and one.heap_bytes <= HEAP_BYTES
        text = f"{one.keys:,} keys in a heap of {one.heap_bytes / 2**30:.0f} GiB: {one.seconds:.0f} s, "
        yield "memory", text + ("exact" if one.exact else "not exact"), enough if one.keys >= MANY_KEYS else None


def _half(shape: Shape) -> bool:
    return shape.superseded is None and shape.keys != "append"


def _one_percent(shape: Shape) -> bool:
    return shape.superseded == 0.01


_GOALS: dict[str, Callable[[Report], Checked]] = {
    "full clean at most as long as bin-pack when half of the records go": _bin_pack,
    "3 × faster than row_number at 1 KB values": _faster(
        "row_number", 3, lambda shape: _half(shape) and shape.value_bytes == 1000
    ),
    "10 × faster than row_number when 1 % of the tail changed": _faster("row_number", 10, _one_percent),
    "5 × faster than MERGE when 1 % of the tail changed": _faster("MERGE", 5, _one_percent),
    "1 % changed, clustered keys: at most 5 % of the tail rewritten": _rewritten,
    "at least Kafka's cleaner per core": _kafka,
    "not slower than DuckDB's QUALIFY from 5 GB on": _duckdb,
    "validation at most 15 % of a run": _validation,
    "cost is linear (×8 bytes within 10 % of ×8 time)": _linear,
    "50 M distinct keys in 4 GiB, exact": _memory,
}


def _pairs(report: Report, peer: str, applies: Callable[[Shape], bool]) -> Iterator[tuple[Measurement, Timing, Timing]]:
    for one in report.measurements:
        firn, other = one.find(FIRN), one.find(peer)
        if firn and other and applies(one.shape):
            yield one, firn, other


def _case(one: Measurement) -> str:
    return f"{one.family}: {one.title}, {one.raw_bytes / 1e6:,.0f} MB"
