"""What many seeds have shown: by finding, by what nobody knows, and how often each injection took effect."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rich.console import Console

from tests.nightly.trials.kinds import INJECTIONS
from tests.nightly.trials.trial import Told
from tests.nightly.trials.violation import Known, Violation, explanation

ENOUGH: Final = 200
"""Seeds of each of its kinds after which a listed violation that did not show counts as mended."""
OFTEN: Final = 20
"""Times that an injection has to take effect in ``MANY`` seeds."""
MANY: Final = 1000


@dataclass(frozen=True)
class Verdict:
    """What a run has shown."""

    of_kind: Counter[str]
    seen: Mapping[Known, list[int]]
    """Seeds by what is listed."""
    strange: Mapping[tuple[str, Violation], list[int]]
    """Seeds by kind and by what is not."""
    gone: list[Known]
    """Entries of findings that enough seeds of their kind no longer show."""

    @property
    def passed(self) -> bool:
        """True when all that was seen is known, and all that is known was seen."""
        return not self.strange and not self.gone


def verdict(done: list[Told], listed: list[Known]) -> Verdict:
    """Sort what the seeds ``done`` have shown by what is ``listed``."""
    of_kind = Counter(told.kind for told in done)
    seen: defaultdict[Known, list[int]] = defaultdict(list)
    strange: defaultdict[tuple[str, Violation], list[int]] = defaultdict(list)
    for told in done:
        for one in told.violations:
            entry = explanation(listed, told.kind, one)
            if entry:
                seen[entry].append(told.seed)
            else:
                strange[told.kind, one._replace(details="")].append(told.seed)
    shown = {one.defect for one in seen}
    few = {one.defect for one in listed if of_kind[one.kind] < ENOUGH}
    gone = [entry for entry in listed if entry.defect not in shown | few]
    return Verdict(of_kind, seen, strange, gone)


def tell(found: Verdict, done: list[Told], console: Console) -> None:
    """Print it, and how often each injection took effect."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(found.of_kind.items()))
    lines = [f"{len(done)} seeds: {kinds}"]
    lines += [f"{entry.title}: {_some(sorted(set(seeds)))}" for entry, seeds in found.seen.items()]
    lines += [f"NOT KNOWN ({kind}) {one}: {_some(sorted(seeds))}" for (kind, one), seeds in found.strange.items()]
    lines += [f"NO LONGER SEEN, take it out of known.toml: {entry.title}" for entry in found.gone]
    console.print(*lines, *_injections(done), sep="\n", markup=False)


def _some(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return f"{len(numbers)} seeds{': ' if numbers else ''}{shown}{' ...' if len(numbers) > 8 else ''}"


def _injections(done: list[Told]) -> Iterator[str]:
    drawn: Counter[str] = Counter()
    took: Counter[str] = Counter()
    for told in done:
        drawn.update(told.drawn)
        took.update(told.took)
    for name in sorted({*INJECTIONS, *drawn}):
        rare = " (RARE)" if len(done) >= MANY and took[name] < OFTEN else ""
        yield f"  {name}: drawn {drawn[name]} times, took effect {took[name]} times{rare}"
