"""``python -m tests.nets.defects``: put each defect of this project's history back; each must turn the suite red.

Exit code 1 when one does not. A defect that its own tests do not notice is held against all that reach its module, if
that is among the rules.
"""

from pathlib import Path
from typing import Annotated

import typer

from tests.nets.hunt import CACHE, hunters
from tests.nets.mistakes import chosen, defects


def main(
    numbers: Annotated[str, typer.Option(help="Which of them, such as 1-10 or 3,17; all by default.")] = "",
    seconds: Annotated[float, typer.Option(help="Maximum time that tests are run with one of them.")] = 180.0,
    cache: Annotated[Path, typer.Option(help="Keeps what was found, for a run that goes on.")] = CACHE,
) -> None:
    """Run the tests with each defect."""
    every = {one.number: one for one in chosen(defects(), numbers)}
    green = []
    with hunters(cache, seconds) as found:
        found.check_sound(every.values())
        for noticed in found.known(list(every.values())):
            what = f"red by {noticed.red}" if noticed.red else "GREEN" if noticed.in_time else "GREEN (time is over)"
            print(f"{every[noticed.number]}: {what}, {noticed.seconds:.0f} s", flush=True)
            if not noticed.red:
                green.append(noticed.number)
    print(f"{len(every) - len(green)} of {len(every)} defects turn the suite red; green: {sorted(green) or 'none'}")
    raise typer.Exit(bool(green))


if __name__ == "__main__":
    typer.run(main)
