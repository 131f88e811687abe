"""Old tombstones become requests to erase their keys, where `firn.erase.max.ms` says so (C30).

A tombstone is requested once a quarter of that time has passed, with its own deadline and up to its own offset: a newer
record of its key stays. Until then readers see it. What was looked at is kept beside the requests, so that a file is
read when it is new, and again each sixteenth of that time if it may hold younger tombstones.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from secrets import token_bytes
from typing import Final, NamedTuple

from pyiceberg.table import Table

from pipeline.care.garbage import Garbage, Kind
from pipeline.care.read_tombstones import Reader, Task, Tombstone, Tombstones
from pipeline.engine.local import LocalEngine
from pipeline.erase.change import change_erasures, check_has_branches
from pipeline.erase.digests import SECRET_BYTES
from pipeline.erase.requests import Erasures, Looked, Request
from pipeline.erase.stored import read_erasures
from pipeline.errors import RefusedError
from pipeline.lake import Lake
from pipeline.lake.branches import REMOVED_TOMBSTONES, on_branch
from pipeline.lake.columns import Columns
from pipeline.lake.data_files import DataFiles, Source
from pipeline.lake.records import has_transactions
from pipeline.lake.row_deletes import FileDeletes
from pipeline.lake.topic_partition import TopicPartition
from pipeline.policy import Policies
from pipeline.policy.policy import REQUESTED_AFTER, UNLIMITED, Policy
from pipeline.segments import Segment, read
from pipeline.segments.cache import ManifestCache
from pipeline.segments.read import read_entries
from pipeline.segments.removed_tombstones import removed_tombstones
from pipeline.segments.segment import RUN

MOST: Final = 100_000
"""Maximum number of keys that a run requests, the oldest tombstones first: each is in a certificate."""
_STEPS: Final = 16
"""Files that were looked at are read again for tombstones that got old when this part (one over it) has passed."""
_AT_A_TIME: Final = 64
"""Number of files whose tombstones are in memory together, beside those chosen so far."""


def old_tombstones(
    lake: Lake, identifier: str, now_ms: int, *, remove: bool, most: int = MOST
) -> tuple[list[Garbage], bool]:
    """A finding per request that the old tombstones of table ``identifier`` make, ``most`` keys at most in all, and
    whether there is something to commit.

    With ``remove`` it is committed. A topic partition with a segment that can't be read is told and left for later.
    Raises UnavailableError when catalog or store do not answer.
    """
    table = lake.table(identifier)
    policies = Policies.parse(identifier, table.properties)
    if all(one.erase_max_ms == UNLIMITED for one in (policies.default, *policies.topics.values())):
        return [], False
    try:
        check_has_branches(table, identifier)
        search = _Search.of(lake, table, identifier, policies, now_ms, most)
        search.run()
    except RefusedError as error:
        return [Garbage.of_error(Kind.REQUEST, identifier, error)], False
    if not search.is_news:
        return search.findings, False
    erasures = search.recorded(search.known)
    if remove:

        def edit(known: Erasures) -> Erasures:
            nonlocal erasures
            erasures = search.recorded(known)
            return erasures

        change_erasures(lake, identifier, edit)
    return [*search.findings, *_told(search.known, erasures)], erasures != search.known


def _told(before: Erasures, after: Erasures) -> Iterator[Garbage]:
    new = max(before.ids, default=0)
    for number in after.ids:
        if number > new:
            rows = after.rows_of(number)
            reason = f"{len(rows)} tombstones of topic {rows[0].topic} are older than firn.erase.max.ms allows to keep"
            yield Garbage(Kind.REQUEST, f"request {number}", goes=False, reason=reason, files=0)


@dataclass
class _Search:
    """A search for tombstones that are old at ``now_ms``; ``found`` has those of each topic partition."""

    lake: Lake
    identifier: str
    table: Table
    policies: Policies
    now_ms: int
    most: int
    known: Erasures
    secret: bytes
    reader: Reader
    findings: list[Garbage] = field(default_factory=list)
    is_news: bool = False
    """True when a file had to be read."""
    found: dict[TopicPartition, Tombstones] = field(default_factory=dict)
    """Of each topic partition that is to be looked at."""
    log_ends: dict[TopicPartition, int] = field(default_factory=dict)
    _recorded: tuple[Erasures, Erasures] | None = None
    """What `recorded` was asked last, and its answer: a commit asks several times."""

    @classmethod
    def of(cls, lake: Lake, table: Table, identifier: str, policies: Policies, now_ms: int, most: int) -> "_Search":
        columns = Columns.of(table, identifier)
        condition, timestamp = columns.is_tombstone, columns.timestamp
        if condition is None or timestamp is None:
            raise RefusedError(
                f"table {identifier}: property firn.erase.max.ms is set, but the table was adopted without "
                f"{'a timestamp column' if condition else 'a tombstone condition'}; allowed: a table that has both"
            )
        known = read_erasures(table)
        secret = known.secret or token_bytes(SECRET_BYTES)
        reader = Reader(
            DataFiles.of(table),
            columns,
            condition,
            timestamp,
            has_transactions(table) and not columns.adopted,
            secret,
            lambda place, one: _is_requested(known, place, _Row.of(one, policies.of(place.topic))),
            most,
        )
        return cls(lake, identifier, table, policies, now_ms, most, known, secret, reader)

    def run(self) -> None:
        """Read what may hold old tombstones that are not requested."""
        tasks = sorted(self._tasks(), key=lambda one: (one.until_ms, one.source.path))
        self.is_news = bool(tasks)
        for start in range(0, len(tasks), _AT_A_TIME):
            part = tasks[start : start + _AT_A_TIME]
            title = f"read tombstones of {self.identifier}"
            weights = [one.source.bytes for one in part]
            answers = LocalEngine().map(self.reader, part, weights=weights, title=title)
            for task, answer in zip(part, answers, strict=True):
                place = task.topic_partition
                if isinstance(answer, RefusedError):
                    self._waits(place, str(answer))
                elif isinstance(answer, Exception):
                    raise answer
                elif place in self.found:
                    before = self.found[place]
                    together = (*before.found, *answer.found)
                    self.found[place] = Tombstones(together, before.is_complete and answer.is_complete)
            self._choose()

    def recorded(self, known: Erasures) -> Erasures:
        """``known`` with the requests, and how far the tombstones were looked at."""
        if self._recorded is None or self._recorded[0] != known:
            self._recorded = known, self._with_requests(known)
        return self._recorded[1]

    def _with_requests(self, known: Erasures) -> Erasures:
        if known.secret not in (b"", self.secret):
            # Another process has made the secret meanwhile: the next run digests the keys under it.
            return known
        groups = defaultdict[tuple[str, bool], list[tuple[TopicPartition, _Row]]](list)
        for place, own in sorted(self.found.items()):
            for row in self._rows(place, own):
                if not _is_requested(known, place, row):
                    # The log end stays until a newer record lands (C4): it holds up no other key's certificate.
                    groups[place.topic, row.below > self.log_ends[place]].append((place, row))
        expires = self.policies.default.erase_history == "expire"
        new = [
            Request(number, place.topic, place.partition, row.below, row.digest, self.now_ms, row.deadline_ms, expires)
            for number, group in enumerate(sorted(groups), start=max(known.ids, default=0) + 1)
            for place, row in sorted(groups[group])
        ]
        looked = {one.topic_partition: one for one in known.looked}
        head = self.table.current_snapshot()
        number = (head.sequence_number or 0) if head else 0
        for place, own in self.found.items():
            if own.is_complete:
                looked[place] = Looked(place.topic, place.partition, self._until_ms(place.topic), number)
        return replace(
            known,
            secret=self.secret if new else known.secret,
            requests=(*known.requests, *new),
            looked=tuple(looked[place] for place in sorted(looked)),
        )

    def _rows(self, place: TopicPartition, own: Tombstones) -> Iterator["_Row"]:
        """A row per key: up to its newest tombstone, by the deadline of its oldest."""
        policy = self.policies.of(place.topic)
        rows: dict[bytes, _Row] = {}
        for one in own.found:
            row = _Row.of(one, policy)
            if same := rows.get(row.digest):
                row = _Row(row.digest, max(row.below, same.below), min(row.deadline_ms, same.deadline_ms))
            rows[row.digest] = row
        yield from rows.values()

    def _tasks(self) -> Iterator[Task]:
        cache = ManifestCache.of(self.lake)
        main = read(self.table, self.identifier, cache=cache).by_partition
        # Read after main, so that no tombstone is missed on its way from there.
        beside = removed_tombstones(self.lake, self.identifier, cache)
        chosen: dict[str, Segment] = {}
        for place in sorted({*main, *beside}):
            if self.policies.of(place.topic).erase_max_ms == UNLIMITED:
                continue
            own = main.get(place, ())
            self.found[place] = Tombstones()
            self.log_ends[place] = max((one.last_offset for one in own), default=-1)
            if unclear := [one for one in own if one.problem]:
                self._waits(place, f"segment {unclear[0].path} {unclear[0].problem}")
                continue
            every = (*own, *beside.get(place, ()))
            chosen |= {one.path: one for one in every if self._may_hold(one)}
        for branch in (self.table, on_branch(self.lake.table(self.identifier), REMOVED_TOMBSTONES)) if chosen else ():
            for entry, deletes in read_entries(branch, among=chosen.keys()):
                segment = chosen[entry.data_file.file_path]
                yield Task(
                    Source.of(entry.data_file),
                    segment.topic_partition,
                    self._until_ms(segment.topic_partition.topic),
                    FileDeletes(entry.sequence_number or 0, tuple(deletes)) if deletes else None,
                    is_decided=branch is not self.table or segment.level >= RUN,
                )

    def _may_hold(self, segment: Segment) -> bool:
        """True when ``segment`` may hold old tombstones that nobody has looked at."""
        until_ms = self._until_ms(segment.topic_partition.topic)
        if segment.tombstones == 0 or not segment.records or segment.oldest_ms > until_ms:
            return False
        looked = self.known.looked_at(segment.topic_partition)
        return (
            looked is None
            or segment.sequence_number > looked.sequence_number
            or min(segment.newest_ms, until_ms) > looked.until_ms
        )

    def _until_ms(self, topic: str) -> int:
        """Tombstones with timestamps up to this are old."""
        allowed = self.policies.of(topic).erase_max_ms
        step = max(1, allowed // _STEPS)
        return (self.now_ms - allowed // REQUESTED_AFTER) // step * step

    def _waits(self, place: TopicPartition, why: str) -> None:
        """Leave the tombstones of ``place`` for later."""
        self.found.pop(place, None)
        error = RefusedError(f"its old tombstones are not requested (firn.erase.max.ms): {why}")
        self.findings.append(Garbage.of_error(Kind.REQUEST, str(place), error))

    def _choose(self) -> None:
        """Keep the oldest tombstones of all topic partitions, as many as there is room for."""
        if sum(len(own.found) for own in self.found.values()) <= self.most:
            return
        every = sorted((one, place) for place, own in self.found.items() for one in own.found)
        kept: dict[TopicPartition, list[Tombstone]] = defaultdict(list)
        for one, place in every[: self.most]:
            kept[place].append(one)
        cut = {place for _, place in every[self.most :]}
        for place, own in self.found.items():
            self.found[place] = Tombstones(tuple(kept[place]), own.is_complete and place not in cut)


class _Row(NamedTuple):
    """What a tombstone asks for: the digest of its key, the offset below which records go, and its deadline."""

    digest: bytes
    below: int
    deadline_ms: int

    @classmethod
    def of(cls, one: Tombstone, policy: Policy) -> "_Row":
        return cls(one.digest, one.offset + 1, max(one.at_ms, 0) + policy.erase_max_ms)


def _is_requested(known: Erasures, place: TopicPartition, row: _Row) -> bool:
    """True when a request asks for all of ``row`` at least as soon, or is certified."""
    return any(
        one.below >= row.below and (one.deadline_ms <= row.deadline_ms or known.certificate_of(one.id) is not None)
        for one in known.naming(place, row.digest)
    )
