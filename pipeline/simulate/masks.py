"""A model of lane ``mask``: which records of a model table are hidden, and the delete files that hide them (C28).

A mask hides every record that a newer one supersedes. It writes one position delete file per Iceberg partition, which
in the model is a level; where older ones are many, it takes their rows over.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline.masks.memory import Compared
from pipeline.segments import Segment
from pipeline.sense.comparing import DueComparison
from pipeline.sense.masking import UNMASKED, Masking
from pipeline.simulate.arrivals import Flags, Offsets, Stream

FILE_BYTES = 1_300
"""Bytes of a position delete file without rows."""
PATH_BYTES = 35
"""Bytes of it per data file that it names."""
ROW_BYTES = 3
"""Bytes of it per row. All three measured with zstd and paths as Firn names them: 1 to 50,000 rows in up to 1,000 data
files."""


@dataclass(frozen=True)
class DeleteFile:
    """A position delete file of one level."""

    level: int
    sequence_number: int
    bytes: int

    def reaches(self, segment: Segment) -> bool:
        """True when a reader of ``segment`` opens the file."""
        return segment.level == self.level and segment.sequence_number <= self.sequence_number


@dataclass(frozen=True)
class MaskEffect:
    """The effect of a mask: the number of ``superseded`` records that it hid, and the delete files ``added`` and
    ``removed``."""

    superseded: int
    added: tuple[DeleteFile, ...]
    removed: tuple[DeleteFile, ...]


class Masks:
    """The hidden records of one topic partition, its live delete files, and what lane ``mask`` remembers."""

    def __init__(self, stream: Stream) -> None:
        self.hidden: Flags = np.zeros(len(stream.keys), dtype=np.bool_)
        """By offset: it is in the table, and no reader sees it."""
        self.files: tuple[DeleteFile, ...] = ()
        self.known: Masking = UNMASKED
        self._stream = stream
        self._gone: Flags = np.zeros(len(stream.keys), dtype=np.bool_)
        """By offset: a plan has removed it."""
        self._compared = 0
        """All records below this offset were compared with each other."""

    def hide(
        self, segments: Sequence[Segment], work: DueComparison, sequence_number: int, most_files: int
    ) -> tuple[tuple[Segment, ...], MaskEffect]:
        """``segments``, in offset order, after the comparison ``work``; with more than ``most_files`` delete files in
        an Iceberg partition these become one."""
        end = max(segment.last_offset for segment in work.segments) + 1
        older = self._stream.previous[self._compared : end]
        going = np.sort(older[older >= 0])
        going = going[~self._gone[going]]
        self.hidden[going] = True
        self._compared = max(self._compared, end)
        starts = np.array([segment.base_offset for segment in segments], dtype=np.int64)
        owners, counts = np.unique(np.searchsorted(starts, going, side="right") - 1, return_counts=True)
        shown = list(segments)
        named: dict[int, list[int]] = defaultdict(list)
        for owner, count in zip(owners.tolist(), counts.tolist(), strict=True):
            shown[owner] = replace(shown[owner], hidden=(shown[owner].hidden or 0) + count)
            named[shown[owner].level].append(count)
        added, removed = [], []
        for level, rows in named.items():
            former = [file for file in self.files if file.level == level]
            if len(former) > most_files:
                removed += former
                rows = [one.hidden for one in shown if one.level == level and one.hidden]
            size = FILE_BYTES + PATH_BYTES * len(rows) + ROW_BYTES * sum(rows)
            added.append(DeleteFile(level, sequence_number, size))
        self.files = (*(file for file in self.files if file not in removed), *added)
        after = tuple(self._reached(one) for one in shown)
        self._remember(after, work, sequence_number, end)
        return after, MaskEffect(len(going), tuple(added), tuple(removed))

    def replaced(self, removed: Iterable[Offsets], added: Iterable[Offsets]) -> None:
        """Plans removed segments with these records and wrote others with those."""
        for offsets in removed:
            self._gone[offsets], self.hidden[offsets] = True, False
        for offsets in added:
            self._gone[offsets] = False

    def drop_needless(self, segments: Sequence[Segment]) -> tuple[DeleteFile, ...]:
        """The delete files that reach none of ``segments``: they leave the table."""
        oldest: Mapping[int, int] = {
            segment.level: segment.sequence_number for segment in sorted(segments, key=lambda one: -one.sequence_number)
        }
        gone = tuple(one for one in self.files if oldest.get(one.level, one.sequence_number + 1) > one.sequence_number)
        if gone:
            self.files = tuple(file for file in self.files if file not in gone)
        return gone

    def _reached(self, segment: Segment) -> Segment:
        """``segment`` with the number of delete files that reach it."""
        reaching = [file.sequence_number for file in self.files if file.reaches(segment)]
        if len(reaching) == segment.row_deletes and max(reaching, default=0) == segment.newest_delete:
            return segment
        return replace(segment, row_deletes=len(reaching), newest_delete=max(reaching, default=0))

    def _remember(self, segments: Sequence[Segment], work: DueComparison, number: int, end: int) -> None:
        """Remember how far ``work`` compared and how much is hidden; it was planned on the table's newest commit."""
        last = max(work.segments, key=lambda one: one.last_offset)
        compared = Compared("", 0, number - 1, work.before, 0, end - 1, last.path, number)
        self.known = Masking(compared, {one.path: one.hidden for one in segments if one.hidden})
