"""What many seeds have shown: by finding, by what nobody knows, and how often each injection took effect."""

from collections import Counter, defaultdict
from typing import Final

from rich.console import Console

from tests.trials.kinds import INJECTIONS
from tests.trials.trial import Told
from tests.trials.violation import Known, Violation, explanation

ENOUGH: Final = 200
"""Seeds of a kind after which a listed violation that did not show counts as mended."""
OFTEN: Final = 20
"""Times that an injection has to take effect in ``MANY`` seeds."""
MANY: Final = 1000


def summarise(done: list[Told], listed: list[Known], console: Console) -> bool:
    """Print what was seen; whether all of it is known, and all that is known was seen."""
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
    console.print(f"{len(done)} seeds: {', '.join(f'{count} {kind}' for kind, count in sorted(of_kind.items()))}")
    for entry in listed:
        numbers = sorted(set(seen[entry]))
        console.print(
            f"{entry.finding} ({entry.kind}, {entry.invariant}, {entry.what}): {_some(numbers)}", markup=False
        )
    for (kind, one), numbers in strange.items():
        console.print(f"NOT KNOWN ({kind}) {one}: {_some(sorted(numbers))}", markup=False)
    gone = [entry for entry in listed if of_kind[entry.kind] >= ENOUGH and not seen[entry]]
    for entry in gone:
        console.print(
            f"NO LONGER SEEN: {entry.finding} ({entry.kind}, {entry.what}); known.toml lists it", markup=False
        )
    _injections(done, console)
    return not strange and not gone


def _some(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return f"{len(numbers)} seeds{': ' if numbers else ''}{shown}{' ...' if len(numbers) > 8 else ''}"


def _injections(done: list[Told], console: Console) -> None:
    drawn: Counter[str] = Counter()
    took: Counter[str] = Counter()
    for told in done:
        drawn.update(told.drawn)
        took.update(told.took)
    for name in sorted({*INJECTIONS, *drawn}):
        rare = " (RARE)" if len(done) >= MANY and took[name] < OFTEN else ""
        console.print(f"  {name}: drawn {drawn[name]} times, took effect {took[name]} times{rare}")
