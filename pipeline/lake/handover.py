"""Files of a stage that go to a table beside the target: once, before the commit that removes their records there.

They are copied to that table's own location. Below the target's they would be files that the target does not refer to:
other tools' orphan removal takes those, and who discards the stage deletes them.
"""

import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.manifest import DATA_FILE_TYPE, DataFile
from pyiceberg.table import Table

from pipeline.errors import ConflictError
from pipeline.lake.catalog import Lake
from pipeline.lake.folders import job_folder

COPIERS: Final = 8
"""Files that are copied at the same time: most of it is waiting for the store."""
_CHUNK: Final = 1 << 22  # bytes
_FIELDS: Final = [field.name for field in DATA_FILE_TYPE[2].fields]

Added = Callable[[Table], Mapping[str, Sequence[DataFile]]]
"""Finds the files in a table beside the target that were handed over for some plans, by plan id."""
Check = Callable[[], None]
"""Raises when the plans are no longer to be handed over."""


@dataclass(frozen=True)
class Handover:
    """What the job ``job_id`` hands over from its stage below ``target`` to the tables beside it."""

    lake: Lake
    target: Table
    job_id: str
    check: Check

    def to(self, table: Table, files: Mapping[str, Sequence[DataFile]], added: Added) -> None:
        """Append copies of ``files``, by plan id, to ``table`` as it was loaded: in one commit, those of plans that
        have none there.

        ``check`` is called after ``table`` was loaded, which the commit asks for unchanged: who deletes the files says
        so first, then moves ``table``'s branch, then deletes. So either the check or the commit fails.

        Raises CommitFailedException when another process committed at the same time: PyIceberg's own retry would append
        a second time what that process may just have appended, so the caller looks again first. ConflictError when a
        file is gone.
        """
        there = added(table)
        fresh = [file for plan_id, own in files.items() if not there.get(plan_id) for file in own]
        if not fresh:
            return
        self.check()
        copies = _copied(self.target, fresh, table, job_folder(table, self.job_id))

        def commit() -> None:
            pinned = self.lake.single_attempt(table)
            with pinned.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
                for file in copies:
                    append.append_data_file(file)

        try:
            self.lake.when_free(commit)
        except CommitFailedException:
            # Any other error leaves it open whether they are in use now. Who drops the stage finds out.
            _delete(table.io, [file.file_path for file in copies])
            raise


def withdraw(lake: Lake, find: Callable[[], Table | None], added: Added) -> None:
    """Remove again what was handed over; ``find`` loads the table, None when there is none."""

    def commit() -> None:
        table = find()
        files = [file for own in added(table).values() for file in own] if table else []
        if table is None or not files:
            return
        pinned = lake.single_attempt(table)
        with pinned.transaction() as transaction, transaction.update_snapshot().overwrite() as remove:
            for file in files:
                remove.delete_data_file(file)

    lake.until_committed(commit)


def changed(file: DataFile, **changes: Any) -> DataFile:
    """``file`` as a manifest lists it, but for some fields (Iceberg spec, "Data File Fields")."""
    known = {name: file[place] for place, name in enumerate(_FIELDS)}
    found = DataFile.from_args(**known | changes)
    found.spec_id = file.spec_id
    return found


def _copied(source: Table, files: Sequence[DataFile], table: Table, folder: str) -> list[DataFile]:
    """Copies of ``files`` in ``folder``, of names that nobody else writes to; none is left when one fails.

    Each table is asked for with its own credentials: a catalog may give them for the table's location only.
    """
    copies = [
        changed(file, file_path=f"{folder}/{uuid.uuid4().hex}-{file.file_path.rpartition('/')[2]}") for file in files
    ]
    try:
        with ThreadPoolExecutor(COPIERS) as copiers:
            list(copiers.map(partial(_copy, source.io, table.io), files, copies))
    except BaseException:
        _delete(table.io, [file.file_path for file in copies])
        raise
    return copies


def _copy(source: FileIO, target: FileIO, file: DataFile, copy: DataFile) -> None:
    try:
        original = source.new_input(file.file_path).open()
    except FileNotFoundError as error:
        raise ConflictError(f"{file.file_path} is gone: its stage was discarded; plan again") from error
    written = target.new_output(copy.file_path)
    with original, written.create() as output:
        shutil.copyfileobj(original, output, _CHUNK)
    if len(written) != file.file_size_in_bytes:
        raise OSError(f"{copy.file_path} has {len(written)} bytes, and was copied from {file.file_size_in_bytes}")


def _delete(io: FileIO, paths: Sequence[str]) -> None:
    for path in paths:
        # What can't be deleted goes with the stage.
        with suppress(OSError):
            io.delete(path)
