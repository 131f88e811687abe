"""``python -m tests.nets.mutants``: make each flip of the rules, and see whether a test turns red.

Exit code 1 when a flip lives that the list says is killed. A flip is held against the test that killed it before, then
(unless ``--listed``) against those that reach its line, nearest first, for at most a minute.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tests.nets.draw import write
from tests.nets.hunt import CACHE, Noticed, hunters
from tests.nets.mistakes import Mistake, chosen, mutants


def main(
    numbers: Annotated[str, typer.Option(help="Which of them, such as 1-10 or 3,17; all by default.")] = "",
    seconds: Annotated[float, typer.Option(help="Maximum time that tests are run with a flip.")] = 60.0,
    cache: Annotated[Path, typer.Option(help="Keeps what was found, for a run that goes on.")] = CACHE,
    among: Annotated[str, typer.Option(help="Folders of unit tests and files of lane tests, by comma; else all.")] = "",
    listed: Annotated[
        bool, typer.Option(help="Only those with a test in the list, and only against that test.")
    ] = False,
    rewrite: Annotated[bool, typer.Option("--write", help="List what was found.")] = False,
) -> None:
    """Run the tests with each flip."""
    every = {one.number: one for one in mutants()}
    wanted = [one for one in chosen(list(every.values()), numbers) if one.tests or not listed]
    killed: dict[int, str] = {}
    alive: dict[int, Noticed] = {}
    with hunters(cache, seconds) as found:
        found.check_sound(wanted)
        for noticed in found.known(wanted):
            if noticed.red:
                killed[noticed.number] = noticed.red
                print(f"{every[noticed.number]}: killed as before, {noticed.seconds:.0f} s", flush=True)
            elif listed:
                alive[noticed.number] = noticed
                print(f"{every[noticed.number]}: ALIVE in {noticed.seconds:.0f} s", flush=True)
        for noticed in found.reached([one for one in wanted if one.number not in killed | alive], among):
            if noticed.red:
                killed[noticed.number] = noticed.red
                print(f"{every[noticed.number]}: killed by {noticed.red}, {noticed.seconds:.0f} s", flush=True)
            else:
                alive[noticed.number] = noticed
                ended = "" if noticed.in_time else ", time is over"
                print(f"{every[noticed.number]}: ALIVE after {noticed.tests} functions{ended}", flush=True)
    if rewrite:
        write(_noted(one, killed, alive) for one in every.values())
    lost = sorted(number for number in alive if every[number].tests)
    print(f"{len(killed)} of {len(wanted)} flips killed, {len(alive)} alive; alive against the list: {lost or 'none'}")
    raise typer.Exit(bool(lost))


def _noted(mistake: Mistake, killed: dict[int, str], alive: dict[int, Noticed]) -> Mistake:
    if mistake.number in killed:
        return replace(mistake, tests=(killed[mistake.number],), lives="")
    return replace(mistake, tests=()) if mistake.number in alive else mistake


if __name__ == "__main__":
    typer.run(main)
