"""What a piece of work takes, as figures by name; entries of a case measured in turns; and the report of all cases.

Imports nothing of Firn.
"""

import gc
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

INTERVAL_SECONDS = 0.05
"""Between two looks at a process's memory."""
CHECKOUT = Path(__file__).parents[2]
VERSIONS = ("pyspark", "pyiceberg", "pyarrow", "duckdb", "polars")

Figures = dict[str, float]
"""Seconds, bytes and numbers by name. ``seconds`` are those of the clock, ``processor`` those of all threads of this
process and of what it has started; ``peak`` is the largest resident size, where a process of its own did the work."""
Run = Callable[[], Figures]


class WrongOutputError(Exception):
    """An entry left something else than it should have."""


@dataclass(frozen=True)
class Measured:
    """One entry of a case: figures over its runs, and those of each."""

    entry: str
    figures: Figures
    runs: list[Figures]

    @classmethod
    def of(cls, entry: str, runs: Sequence[Figures]) -> "Measured":
        """Medians of the runs, the largest of memory."""
        over = {name: max if name == "peak" else statistics.median for name in runs[0]}
        figures = {name: float(of_all(run[name] for run in runs)) for name, of_all in over.items()}
        return cls(entry, figures, list(runs))


def in_turns(entries: Mapping[str, Run], runs: int, warm_up: Sequence[Run] = ()) -> list[Measured]:
    """Measure ``entries`` after the runs of ``warm_up``: one after the other, so that what the machine does meanwhile
    is shared by all. Raises WrongOutputError for the first that leaves something wrong."""
    for run in warm_up:
        run()
    ran: dict[str, list[Figures]] = {name: [] for name in entries}
    for _ in range(runs):
        for name, run in entries.items():
            # What others wrote goes to disk now, and not in this entry's time; what they held is not its memory.
            os.sync()
            gc.collect()
            pa.default_memory_pool().release_unused()
            try:
                ran[name].append(run())
            except WrongOutputError as error:
                raise WrongOutputError(f"{name} {error}") from error
        print("    " + ", ".join(f"{name} {of[-1]['seconds']:.2f} s" for name, of in ran.items()))
    return [Measured.of(name, of) for name, of in ran.items()]


def finished(command: Sequence[str], variables: Mapping[str, str], text: str = "") -> Figures:
    """Run a process to its end; its ``peak``. RuntimeError with its output when it fails."""
    peak = 0
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as given:
        given.write(text)
        given.seek(0)
        process = psutil.Popen(command, env=variables, cwd=CHECKOUT, stdin=given, stdout=output, stderr=output)
        while process.poll() is None:
            with suppress(psutil.NoSuchProcess):  # it ended while we looked
                peak = max(peak, process.memory_info().rss)
            time.sleep(INTERVAL_SECONDS)
        if process.returncode:
            output.seek(0)
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{output.read()}")
    return {"peak": peak}


@contextmanager
def measured() -> Iterator[Figures]:
    """The figures of the block, complete once it is over."""
    figures: Figures = {}
    started, used = time.monotonic(), processor_seconds()
    yield figures
    figures["seconds"] = time.monotonic() - started
    figures["processor"] = processor_seconds() - used


def processor_seconds() -> float:
    """Those of all threads of this process and of what it has started, of ended processes as well."""
    own = psutil.Process()
    return sum(sum(one.cpu_times()[:4]) for one in (own, *own.children(recursive=True)))


@dataclass(frozen=True)
class Case:
    """One input and the entries that were measured on it."""

    family: str
    title: str
    entries: list[Measured]


@dataclass(frozen=True)
class Report:
    """Everything that a run of the benchmarks found."""

    machine: dict[str, str]
    scale: float
    cases: list[Case] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """As JSON at ``path``."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Report":
        """The report that was written to ``path``."""
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        cases = [Case(**one | {"entries": [Measured(**each) for each in one["entries"]]}) for one in report["cases"]]
        return cls(**report | {"cases": cases})

    def with_earlier(self, before: "Report", families: Sequence[str]) -> "Report":
        """This report and, of the families that it lacks, what was measured ``before``, in the order of ``families``.

        Every ratio is one within a case, whose entries ran in turns; a report of another machine or size adds nothing.
        """
        if (before.machine, before.scale) != (self.machine, self.scale):
            return self
        own = {case.family for case in self.cases}
        every = [*self.cases, *(case for case in before.cases if case.family not in own)]
        return replace(self, cases=sorted(every, key=lambda case: families.index(case.family)))


def machine(cores: int) -> dict[str, str]:
    """Facts on which the figures depend: processor, cores in use, memory, versions, the JVM's options."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": _processor(),
        "cores": f"{cores} of {os.cpu_count()}",
        "memory": f"{memory / 2**30:.0f} GiB",
        # Without the kernel's build: another build of the same version is the same machine.
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "Python": platform.python_version(),
        "Java": java[0] if java else "unknown",
        "driver memory": os.environ.get("SPARK_DRIVER_MEMORY", "Spark's default"),
        "JVM options": os.environ.get("SPARK_SUBMIT_OPTS", "none"),
    } | {name: version(name) for name in VERSIONS}


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text(encoding="utf-8").splitlines() if facts.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
