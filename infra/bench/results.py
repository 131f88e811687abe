"""Results of a benchmark, as plain values: written to JSON and read again by goals, tables and plots."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from infra.bench.data import KEY_BYTES, Shape
from infra.bench.entries import Task

VERSIONS = ("pyspark", "pyiceberg", "pyarrow", "duckdb", "polars")
ELSEWHERE = Path("report", "elsewhere.json")
SENSE, DEMO = "first sense of 100,000 segments", "make demo"
STORE = "0.4 GB in an S3 server: {}"
"""Names of seconds that are measured elsewhere."""
MASK_WRITES, MASK_TIME, MASK_SCAN = "mask writes", "mask", "scan of a masked table"
LIGHTEN_TIME, MASK_AMPLIFICATION, FRESHNESS = "lighten", "write amplification with masking", "freshness"
"""Names of ratios that are measured elsewhere."""


@dataclass(frozen=True)
class Timing:
    """One entry in one case. ``runs`` are wall seconds in order, ``rooms`` median seconds of parts of them.

    ``processor`` are median seconds of all threads, garbage collection and compilation included.
    ``peak_bytes`` is the largest resident size of the processes that worked, but for JVMs, ``peak_jvm_bytes`` that of
    JVMs. ``tail_replaced`` is the fraction of the tail's bytes whose files are no longer in the table (task full). An
    entry with a ``problem`` left something else than it should have and has no times.
    """

    name: str
    title: str
    task: str
    cores: int
    seconds: float
    processor: float
    runs: list[float]
    rooms: dict[str, float]
    peak_bytes: int
    peak_jvm_bytes: int
    written_bytes: int
    written_files: int
    tail_replaced: float
    problem: str | None = None


@dataclass(frozen=True)
class Measurement:
    """One case: its input in records, bytes of keys and values (``raw_bytes``) and bytes of files, and its timings."""

    family: str
    shape: Shape
    records: int
    raw_bytes: int
    tail_file_bytes: int
    head_file_bytes: int
    segment_bytes: int
    timings: list[Timing]

    @property
    def title(self) -> str:
        return self.shape.title

    @property
    def file_bytes(self) -> int:
        return self.tail_file_bytes + self.head_file_bytes

    def find(self, name: str, task: str = Task.FULL) -> Timing | None:
        """The timing of entry ``name``; None when it was not measured or has a problem."""
        matching = [one for one in self.timings if one.name == name and one.task == task and one.problem is None]
        return matching[0] if matching else None

    def input_of(self, task: str) -> tuple[int, int]:
        """Records and raw bytes that entries of ``task`` read: all, or those of the head."""
        if task == Task.FULL:
            return self.records, self.raw_bytes
        tail = self.shape.records // self.shape.partitions * self.shape.partitions
        return self.records - tail, self.raw_bytes - tail * (self.shape.value_bytes + KEY_BYTES)


@dataclass(frozen=True)
class Memory:
    """A clean whose memory was looked at: ``raw_bytes`` of keys and values, peaks as in Timing."""

    engine: str
    keys: int
    records: int
    raw_bytes: int
    peak_bytes: int
    peak_jvm_bytes: int
    seconds: float
    exact: bool

    @property
    def title(self) -> str:
        return f"{self.keys:,} keys, {self.raw_bytes / 1e9:.1f} GB of keys and values, engine {self.engine}"


@dataclass(frozen=True)
class Ratio:
    """A figure beside that of a peer, or beside 1; ``case`` is what was measured, ``found`` the figures in words."""

    times: float
    case: str
    found: str


@dataclass(frozen=True)
class Elsewhere:
    """Measurements of other programs, kept in a file: cleans by their titles, seconds by names, and by names of goals
    how many times a peer's figure was measured, with the case."""

    memory: dict[str, Memory] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, Ratio] = field(default_factory=dict)

    @classmethod
    def read(cls, home: Path) -> "Elsewhere":
        """The measurements so far with the benchmark's ``home``."""
        path = home / ELSEWHERE
        if not path.exists():
            return cls()
        return cls.of(json.loads(path.read_text(encoding="utf-8")))

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Elsewhere":
        """The measurements in JSON ``facts``; ratios were not always measured."""
        memory = {title: Memory(**one) for title, one in facts["memory"].items()}
        return cls(memory, facts["seconds"], {name: Ratio(**one) for name, one in facts.get("ratios", {}).items()})

    def write(self, home: Path) -> None:
        path = home / ELSEWHERE
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


@dataclass
class Report:
    """Everything that a run of the benchmarks found."""

    machine: dict[str, str]
    scale: float
    quick: bool
    measurements: list[Measurement] = field(default_factory=list)
    elsewhere: Elsewhere = field(default_factory=Elsewhere)

    def write(self, path: Path) -> None:
        """As JSON at ``path``."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Report":
        """The report that was written to ``path``."""
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        measurements = [
            Measurement(
                **one | {"shape": Shape(**one["shape"]), "timings": [Timing(**each) for each in one["timings"]]}
            )
            for one in facts["measurements"]
        ]
        return cls(**facts | {"measurements": measurements, "elsewhere": Elsewhere.of(facts["elsewhere"])})


def completed(measured: Report, before: Report, families: Sequence[str]) -> Report:
    """``measured`` and, of the families that it lacks, what was measured ``before``, in the order of ``families``.

    Every ratio is one within a case, whose entries ran in turns; a report of another machine or size adds nothing.
    """
    if (before.machine, before.scale, before.quick) != (measured.machine, measured.scale, measured.quick):
        return measured
    own = {one.family for one in measured.measurements}
    every = [*measured.measurements, *(one for one in before.measurements if one.family not in own)]
    ordered = sorted(every, key=lambda one: families.index(one.family))
    elsewhere = Elsewhere(
        before.elsewhere.memory | measured.elsewhere.memory,
        before.elsewhere.seconds | measured.elsewhere.seconds,
        before.elsewhere.ratios | measured.elsewhere.ratios,
    )
    return replace(measured, measurements=ordered, elsewhere=elsewhere)


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
