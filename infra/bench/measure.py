"""Run cases: entries in turns, every output checked before its time counts."""

import gc
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from infra.bench.cases import Case
from infra.bench.check import fingerprint
from infra.bench.data import Shape
from infra.bench.entries import Bench, Entry, Measured, Task, sources
from infra.bench.inputs import Inputs, prepare
from infra.bench.results import Measurement, Timing
from pipeline.lake import Lake

WARM_UP = Shape(1000, "uniform", None, 1, 20_000)
WARM_UP_RUNS = 2

Say = Callable[[str], None]


@dataclass
class _Series:
    """The runs of one entry in one case so far, and what its last output looked like."""

    entry: Entry
    runs: list[Measured] = field(default_factory=list)
    written_bytes: int = 0
    written_files: int = 0
    tail_replaced: float = 0.0
    problem: str | None = None

    def once(self, bench: Bench, inputs: Inputs) -> None:
        """One more run; when its output is not what it should be, a problem in place of all times."""
        # What others wrote goes to disk now, and not in this entry's time; what they held is not this entry's memory.
        os.sync()
        gc.collect()
        pa.default_memory_pool().release_unused()
        with self.entry.run(bench, inputs) as done:
            actual, wanted = fingerprint(done.files), self.entry.expected(inputs)
            if actual != wanted:
                self.problem = f"left {actual}, should be {wanted}"
                return
            before = {*sources(self.entry.task, inputs), *inputs.tail.files}
            written = [path for path in done.files if path not in before]
            self.written_files = len(written)
            self.written_bytes = sum(path.stat().st_size for path in written)
            if self.entry.task is Task.FULL:
                replaced = set(inputs.tail.files) - set(done.files)
                tail = inputs.tail.bytes
                self.tail_replaced = sum(path.stat().st_size for path in replaced) / tail if tail else 0.0
        self.runs.append(done)

    def timing(self, cores: int) -> Timing:
        runs = [] if self.problem else [run.seconds for run in self.runs]
        rooms = self.runs[0].rooms if runs else {}
        return Timing(
            name=self.entry.name,
            title=self.entry.title,
            task=self.entry.task,
            cores=self.entry.cores or cores,
            seconds=statistics.median(runs) if runs else 0.0,
            runs=runs,
            processor=statistics.median(run.processor for run in self.runs) if runs else 0.0,
            rooms={room: statistics.median(run.rooms[room] for run in self.runs) for room in rooms},
            peak_bytes=max(run.peak.others for run in self.runs) if runs else 0,
            peak_jvm_bytes=max(run.peak.jvm for run in self.runs) if runs else 0,
            written_bytes=self.written_bytes,
            written_files=self.written_files,
            tail_replaced=self.tail_replaced,
            problem=self.problem,
        )


def measure(bench: Bench, lake: Lake, cases: Sequence[Case], say: Say) -> Iterator[Measurement]:
    """Measure ``cases`` one after the other; ``say`` hears of every run."""
    warm: set[tuple[str, Task]] = set()
    for number, case in enumerate(cases, 1):
        say(f"[{number}/{len(cases)}] {case.name}")
        cold = [entry for entry in case.entries if not (entry.warms_itself or (entry.name, entry.task) in warm)]
        _warm_up(bench, lake, cold, say)
        warm |= {(entry.name, entry.task) for entry in cold}
        inputs = prepare(lake, case.shape, bench.engines["local"])
        yield _measure(bench, case, inputs, say)


def _measure(bench: Bench, case: Case, inputs: Inputs, say: Say) -> Measurement:
    every = [_Series(entry) for entry in case.entries]
    for _ in range(case.runs):
        # In turns, so that what the machine does meanwhile is shared by all.
        for series in every:
            if series.problem is None:
                series.once(bench, inputs)
        say("    " + ", ".join(_last(series) for series in every))
    return Measurement(
        family=case.family,
        shape=case.shape,
        records=inputs.records,
        raw_bytes=inputs.raw_bytes,
        tail_file_bytes=inputs.tail.bytes,
        head_file_bytes=inputs.whole.bytes - inputs.tail.bytes,
        segment_bytes=inputs.segment_bytes,
        timings=[series.timing(bench.cores) for series in every],
    )


def _warm_up(bench: Bench, lake: Lake, entries: Sequence[Entry], say: Say) -> None:
    """Run ``entries`` on a small input, so that nobody's classes are loaded and compiled within the measured time."""
    if not entries:
        return
    small = prepare(lake, WARM_UP, bench.engines["local"])
    for entry in entries:
        say(f"    warm-up: {entry.name}")
        for _ in range(WARM_UP_RUNS):
            with entry.run(bench, small):
                pass


def _last(series: _Series) -> str:
    return f"{series.entry.name} " + ("differs" if series.problem else f"{series.runs[-1].seconds:.2f} s")
