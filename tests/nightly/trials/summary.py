"""What many seeds have shown: by what is known, and by what is not."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console

from tests.nightly.trials.trial import Told
from tests.nightly.trials.violation import Known, Violation, explanation

ENOUGH: Final = 200
"""Seeds of each of its kinds after which a listed violation that did not show counts as mended."""


@dataclass(frozen=True)
class Verdict:
    """What a run has shown."""

    of_kind: Counter[str]
    seen: Mapping[Known, list[int]]
    """Seeds by what is listed."""
    strange: Mapping[tuple[str, Violation], list[int]]
    """Seeds by kind and by what is not."""
    gone: list[Known]
    """Entries that enough seeds of each of their kinds no longer show."""

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
    gone = [one for one in listed if one not in seen and all(of_kind[kind] >= ENOUGH for kind in one.kinds)]
    return Verdict(of_kind, seen, strange, gone)


def tell(found: Verdict, console: Console) -> None:
    """Print it."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(found.of_kind.items()))
    lines = [f"{found.of_kind.total()} seeds: {kinds}"]
    lines += [f"known: {entry.invariant}, {entry.why}: {_some(seeds)}" for entry, seeds in found.seen.items()]
    lines += [f"NOT KNOWN ({kind}) {one}: {_some(seeds)}" for (kind, one), seeds in found.strange.items()]
    lines += [f"NO LONGER SEEN, take it out of known.toml: {entry.invariant}, {entry.why}" for entry in found.gone]
    console.print(*lines, sep="\n", markup=False)


def _some(seeds: Sequence[int]) -> str:
    numbers = sorted(set(seeds))
    return f"{len(numbers)} seeds: {', '.join(map(str, numbers[:8]))}{' ...' if len(numbers) > 8 else ''}"
