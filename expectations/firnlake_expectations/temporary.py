"""Folders for temporary files, which may hold keys. What a killed process has left is removed by the next one.

A process holds a lock on each of its folders, and the operating system frees the lock however the process ends. So
whoever gets the lock may remove the folder. A process id would prove nothing: it may be used again, or belong to
another container that shares the temporary folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@contextmanager
def temporary_folder() -> Iterator[str]:
    """A new folder below the system's temporary folder, which only this user may open; it is removed after the block.

    First removes the folders of this user's dead processes. Raises OSError if no folder can be made.
    """
    prefix = f"firn-{os.geteuid()}-"
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        _remove_if_left(left)
    # Until it is locked, the folder has a name that no other process looks for.
    folder = Path(tempfile.mkdtemp(prefix=f"new-{prefix}"))
    lock = os.open(folder, _FOLDER)
    with suppress(OSError):  # a file system without locks: the folder keeps this name, so nobody takes it for left
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = folder.rename(folder.with_name(folder.name.removeprefix("new-")))
    try:
        yield str(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the next process tries again
        os.close(lock)


def _remove_if_left(folder: Path) -> None:
    with suppress(OSError):  # its process lives, another process removes it, or it can't be removed
        lock = os.open(folder, _FOLDER)
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
        finally:
            os.close(lock)
