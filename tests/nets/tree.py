"""A copy of the checkout in memory, in which mistakes are made and taken back: never in the checkout itself."""

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.nets.mistakes import ROOT, Mistake

_LATER: Final = itertools.count(1)
"""Seconds added to the time of each write: Python tells stale bytecode by a module's size and whole seconds."""


@dataclass(frozen=True)
class Tree:
    """A copy of all files of the checkout that git would commit, in ``root``."""

    root: Path
    _began: float = field(default_factory=lambda: ROOT.stat().st_mtime)

    @classmethod
    def copied(cls, root: Path) -> "Tree":
        """Copy the checkout, changes that are not committed included, to the new folder ``root``."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
            text=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file() and not (ROOT / name).is_symlink():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)
        return cls(root)

    @property
    def sources(self) -> list[str]:
        """What Python's path has of it."""
        return [str(self.root / folder) for folder in ("pipeline", "expectations", ".")]

    @property
    def scratch(self) -> Path:
        """Where tests put their files."""
        return self.root.with_name(f"{self.root.name}-files")

    @contextmanager
    def with_mistake(self, mistake: Mistake) -> Iterator[None]:
        """The tree with ``mistake`` made. Raises ValueError when its text is not there once."""
        sound = (ROOT / mistake.module).read_text()
        self._write(mistake.module, mistake.made_in(sound))
        try:
            yield
        finally:
            self._write(mistake.module, sound)

    def _write(self, module: str, text: str) -> None:
        path = self.root / module
        path.write_text(text)
        moment = self._began + next(_LATER)
        os.utime(path, (moment, moment))
