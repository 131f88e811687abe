"""Results of a benchmark as plain values: written to JSON, and read again by goals, tables and plots."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from infra.bench.measure import Measured

VERSIONS = ("pyspark", "pyiceberg", "pyarrow", "duckdb", "polars")


@dataclass(frozen=True)
class Case:
    """One input and the entries that were measured on it; ``facts`` are the figures that they have in common."""

    family: str
    title: str
    facts: Mapping[str, float]
    entries: list[Measured]

    def figure(self, entry: str, name: str) -> float | None:
        """A figure of an entry, or of the case; None where the entry was not measured, or left something wrong."""
        measured = (one.figures for one in self.entries if one.entry == entry and not one.problem)
        return next(({**self.facts, **figures}.get(name) for figures in measured), None)


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
