"""Environment variables that make a ``firn`` process fail at a call of its catalog or its store."""

from pathlib import Path

from tests.faults.harness.fault import Fault, Kind
from tests.faults.harness.faulty import properties_of


def dying(folder: Path, when: str, call: str, nth: int) -> dict[str, str]:
    """The environment of a process that is killed "before" or "after" that call of its catalog."""
    return failing(folder, Fault(Kind.KILL, call, nth, when == "after"))


def failing(folder: Path, fault: Fault) -> dict[str, str]:
    """The environment of a process that comes to ``fault``; it says so in ``folder``."""
    found = properties_of(fault, folder)
    return {f"PYICEBERG_CATALOG__LAKE__{name.upper().replace('-', '_')}": value for name, value in found.items()}
