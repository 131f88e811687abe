"""The goals of goals.toml, each with the figure that was measured where it applies. Pure functions of a report."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from infra.bench.results import Case, Report

BYTES = ("raw bytes", "written", "data", "metadata", "peak", "peak of JVM", "peak of all")
SECONDS = ("seconds", "core seconds", "compact", "validate", "by digest", "by key", "longest lag")


@dataclass(frozen=True)
class Goal:
    """A goal as goals.toml says it."""

    text: str
    limit: float
    entry: str
    figure: str = "seconds"
    peer: str = ""
    of: str = ""
    families: Sequence[str] = ()
    where: Mapping[str, float] = field(default_factory=dict)
    at_least: Mapping[str, float] = field(default_factory=dict)

    def finding(self, case: Case) -> "Finding | None":
        """What ``case`` says of the goal; None when the goal does not apply to it, or not all was measured."""
        ours = case.figure(self.entry, self.figure)
        theirs = case.figure(self.peer, self.of or self.figure) if self.peer else 1.0
        if ours is None or theirs is None or not self._applies(case):
            return None
        found = shown(self.figure, ours)
        if self.peer:
            found = f"{ours / theirs:.3g} × ({found}, {shown(self.of or self.figure, theirs)})"
        return Finding(self.text, f"{case.family}: {case.title}", f"{self.entry}: {found}", ours <= self.limit * theirs)

    def _applies(self, case: Case) -> bool:
        return (
            (not self.families or case.family in self.families)
            and all(case.facts.get(name) == fact for name, fact in self.where.items())
            and all(case.facts.get(name, 0) >= fact for name, fact in self.at_least.items())
        )


@dataclass(frozen=True)
class Finding:
    """One goal in one case: what was found, in words, and whether that is enough; ``met`` None: not measured here."""

    goal: str
    case: str
    found: str
    met: bool | None


def goals() -> list[Goal]:
    """All goals, in order."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["goal"]
    return [Goal(at_least=table.pop("from", {}), **table) for table in tables]


def findings(report: Report) -> list[Finding]:
    """Every goal in every case where it applies, in order; one that no case of ``report`` shows is not measured."""
    every: dict[str, list[Finding]] = {}
    for goal in goals():
        shows = every.setdefault(goal.text, [])
        shows += [finding for case in report.cases if (finding := goal.finding(case))]
    missing = {text: [Finding(text, "", "not measured", None)] for text, shows in every.items() if not shows}
    return [finding for shows in (every | missing).values() for finding in shows]


def shown(name: str, figure: float) -> str:
    """A figure with its unit and its name."""
    if name in BYTES:
        return f"{figure / 1e6:,.0f} MB {name}" if figure >= 1e7 else f"{figure / 1e3:,.1f} kB {name}"
    if name == "processor":
        return f"{figure:.1f} CPU s"
    return f"{figure:.2f} s {name}".removesuffix(" seconds") if name in SECONDS else f"{figure:,.4g} {name}"
