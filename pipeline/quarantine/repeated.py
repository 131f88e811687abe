"""Records that two jobs have moved to the quarantine, of which only one was published.

Who discards a job asks the table's history whether it was published. Where that has been expired, the records
themselves tell what can go: those that lie here a second time.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b

from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from pipeline.lake import Lake
from pipeline.lake.columns import Columns
from pipeline.lake.filters import EVERYTHING
from pipeline.lake.folders import job_of
from pipeline.lake.handover import withdraw
from pipeline.plan.failure import stages_of
from pipeline.plan.plan import STAGE_INFIX
from pipeline.quarantine.quarantine import PLAN, REASON, added_by, find, offsets, origin
from pipeline.segments.read import read_entries


def retract_repeated(lake: Lake, identifier: str, job_id: str, plan_ids: Collection[str] | None = None) -> None:
    """Take back what a job has moved to the quarantine of table ``identifier``, for all or some of its plans, as far as
    files of other jobs hold every record of it.

    Nothing can be lost by this, whether the job was published or not: a job counts only when it has no stage any more,
    so nobody will take its files back, and the commit asks for the snapshot that was looked at.
    """
    added = added_by(job_id, plan_ids)

    def repeated(table: Table) -> Mapping[str, Sequence[DataFile]]:
        own = [file for some in added(table).values() for file in some]
        return {job_id: _Repeated(lake, table, identifier).of(own)} if own else {}

    withdraw(lake, partial(find, lake, identifier), repeated)


class _Repeated:
    """Compares files of the quarantine ``table`` with those of settled jobs, by all columns but Firn's own."""

    def __init__(self, lake: Lake, table: Table, identifier: str) -> None:
        columns = Columns.named(table, identifier)
        own = {columns.level, columns.delete_horizon, PLAN, REASON}
        names = [field.name for field in table.schema().fields if field.name not in own]
        self._scan = ArrowScan(table.metadata, table.io, table.schema().select(*names), EVERYTHING)
        self._table, self._identifier = table, identifier
        self._offset = table.schema().find_field(columns.offset)
        self._staged = {name.rpartition(STAGE_INFIX)[2] for name in stages_of(lake, identifier)}

    def of(self, own: Sequence[DataFile]) -> list[DataFile]:
        """Those of ``own``, files of one job, whose records other jobs' files hold."""
        settled = self._settled(job_of(own[0].file_path))
        return [file for file in own if self._is_held(file, settled)]

    def _settled(self, job_id: str | None) -> list[DataFile]:
        found = []
        for entry, row_deletes in read_entries(self._table):
            job = job_of(entry.data_file.file_path)
            # From a file with row-level deletes the very record may be gone.
            if job and job != job_id and job not in self._staged and not row_deletes:
                found.append(entry.data_file)
        return found

    def _is_held(self, file: DataFile, settled: Sequence[DataFile]) -> bool:
        others = [other for other in settled if self._may_share(file, other)]
        # Of a file that somebody has removed without asking the table nothing can be said.
        with suppress(FileNotFoundError):
            missing = set(self._records(file)) if others else None
            for other in others:
                missing = missing and missing.difference(self._records(other))
            return missing is not None and not missing
        return False

    def _may_share(self, one: DataFile, other: DataFile) -> bool:
        place = origin(one, self._table, self._identifier)[0]
        if place != origin(other, self._table, self._identifier)[0]:
            return False
        (first, last), (lower, upper) = offsets(one, self._offset), offsets(other, self._offset)
        return (first is None or upper is None or first <= upper) and (last is None or lower is None or lower <= last)

    def _records(self, file: DataFile) -> Iterator[bytes]:
        """A digest for each record."""
        for batch in self._scan.to_record_batches([FileScanTask(file)]):
            # One by one: their values may be large.
            for row in batch.to_struct_array():
                yield blake2b(repr(row.as_py()).encode(), digest_size=16).digest()
