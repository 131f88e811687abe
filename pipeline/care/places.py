"""Where files of a table lie: in a folder of one of Firn's jobs, among the lists of plans, or elsewhere."""

import re
from collections.abc import Iterable
from typing import Final

from pyiceberg.table import Table

from pipeline.care.garbage import Kind
from pipeline.history.published_plans import commits_folder
from pipeline.lake.folders import JOB_ID, Stored, data_folder, store
from pipeline.lake.job_documents import documents_folder

_LIST: Final = re.compile(rf"\.?({JOB_ID})-")
"""Begin of the name of a list of plans, and of its checksum."""
_JOB: Final = re.compile(rf"/({JOB_ID})/")


class Places:
    """Tells where files of a table lie, by their paths on the store."""

    def __init__(self, target: Table) -> None:
        self._location = target.location().rstrip("/")
        self._lists = commits_folder(target)
        self._documents = documents_folder(target)
        self._data = data_folder(target)
        roots = (self._location, self._lists, self._documents, self._data)
        self._paths = {root: store(target, root)[1] for root in roots}

    def job_of(self, file: Stored) -> str | None:
        """The job of Firn's that ``file`` belongs to, by one of the folders that are this table's own."""
        folder, _, name = file.path.rpartition("/")
        if folder == self._paths[self._lists]:
            match = _LIST.match(name)
        else:
            root = next((one for one in (self._documents, self._data) if self._is_in(file, one)), None)
            match = _JOB.match(file.path, len(self._paths[root])) if root else None
        return match[1] if match else None

    def group(self, files: Iterable[Stored]) -> dict[tuple[Kind, str], list[Stored]]:
        """``files`` by kind and folder: that of their job, else the part of the table's location that they lie in."""
        grouped: dict[tuple[Kind, str], list[Stored]] = {}
        for file in files:
            grouped.setdefault(self._place(file), []).append(file)
        return grouped

    def is_metadata(self, folder: str) -> bool:
        """True for the folder of the table's metadata files."""
        return folder == self._documents.rpartition("/")[0]

    def _place(self, file: Stored) -> tuple[Kind, str]:
        if job_id := self.job_of(file):
            if self._is_in(file, self._lists):
                return Kind.PLAN_LIST, self._lists
            return Kind.DATA, f"{self._documents if self._is_in(file, self._documents) else self._data}/{job_id}"
        within, slash, _ = file.path[len(self._paths[self._location]) :].lstrip("/").partition("/")
        return Kind.ORPHANS, f"{self._location}/{within}" if slash else self._location

    def _is_in(self, file: Stored, root: str) -> bool:
        return file.path.startswith(f"{self._paths[root]}/")
