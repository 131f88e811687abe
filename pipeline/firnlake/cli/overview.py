"""Subcommands that show and explain, and change nothing: `status`, `checkpoint` and `explain`."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Annotated, Final

import typer

from firnlake.cli import show
from firnlake.cli.options import (
    ONE_KEY,
    AsJson,
    Limit,
    Now,
    OneTopicPartition,
    Partition,
    TableName,
    at,
    key_columns,
    parse_key,
)
from firnlake.cli.show import Size
from firnlake.clock import show_ms, show_span
from firnlake.errors import FirnError, RefusedError, WaitingError
from firnlake.iceberg.branches import MENDED
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.explain_key import Fate, KeyExplanation, explain_key
from firnlake.inspect.outlook import Outlook, RemovingCommit, SegmentExplanation, explain_segment, outlooks
from firnlake.inspect.status import FOR_PEOPLE, PartitionCondition, PartitionStatus, Status, each_status, status_of
from firnlake.inspect.versions import Version
from firnlake.lanes import Lane
from firnlake.lanes.answer import Reason
from firnlake.lanes.dirty_ratio import dirty_ratio
from firnlake.plan.read_states import read_once
from firnlake.table.segment import LANDED, Segment
from firnlake_expectations.wording import count

SHOWN: Final = 20
"""Number of topic partitions, topics and reasons that are printed, unless --limit says otherwise."""
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")
"""The names that Kafka allows for topics."""


def status(
    table: Annotated[
        str | None,
        typer.Argument(metavar="[TABLE]", help="The table, in detail. Default: all tables, with a line for each."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Print only what waits for a person; exit code 6 if anything does.")
    ] = False,
    limit: Limit = SHOWN,
    as_json: AsJson = False,
    now: Now = None,
) -> None:
    """Show what tables hold, how dirty they are, what is due, and what is blocked and why."""
    lake, now_ms = Lake.load(), at(now)
    names = lake.all_tables() if table is None else [table]
    found: Mapping[str, Status | FirnError] = (
        each_status(lake, names, now_ms) if table is None else {table: status_of(lake, table, now_ms)}
    )
    statuses = [one for one in found.values() if isinstance(one, Status)]
    unreadable = [one for one in found.values() if isinstance(one, FirnError)]
    if check:  # what a table refuses, only a person can end
        unreadable = [WaitingError(str(one)) if isinstance(one, RefusedError) else one for one in unreadable]
    if as_json:
        show.as_json([one if isinstance(one, Status) else {"table": name, "error": one} for name, one in found.items()])
    elif not found:
        show.line(_nothing(lake))
    elif table is None and not check:
        _show_all(found, [name for name in names if name not in found][:limit])
    elif not check:
        _show(statuses[0], limit)
    waiting = [one for one in map(Status.waiting, statuses) if one] if check else []
    show.end([*unreadable, *waiting])
    if check and found and not as_json:
        show.line(f"{count(len(statuses), 'table')}: nothing waits for a person")


def checkpoint(table: TableName) -> None:
    """Print how far each topic partition is cleaned, in the format of Kafka's cleaner-offset-checkpoint.

    A topic whose name Kafka does not allow could not be read back, so it is left out and named.
    """
    # Kafka's OffsetCheckpointFile: its version, the number of entries, and for each log that has been cleaned once, an
    # entry with its first dirty offset (C16).
    lake = Lake.load()
    with lake.reading(table):
        states = read_once(lake, table, now_ms=0, look_at_transactions=False).states()
    started = (state for state in states if state.cleaned_through is not None)
    cleaned = sorted((*state.topic_partition, state.first_dirty_offset) for state in started)
    entries = [f"{topic} {partition} {offset}" for topic, partition, offset in cleaned if _LEGAL.fullmatch(topic)]
    print(0, len(entries), *entries, sep="\n")
    others = [(topic, partition) for topic, partition, _ in cleaned if not _LEGAL.fullmatch(topic)]
    problem = "can't be written to a checkpoint; allowed: letters, digits, '.', '_' and '-'"
    show.end([RefusedError(f"table {table}: topic {name!r} (partition {number}) {problem}") for name, number in others])


def _nothing(lake: Lake) -> str:
    if lake.exists:
        return f"catalog {lake.name} ({lake.address}) has no table that Firn can maintain"
    return f"there is no catalog {lake.address} yet: `firn create` makes it; FIRN_HOME chooses another lake's folder"


def _show_all(found: Mapping[str, Status | FirnError], others: Sequence[str]) -> None:
    rows: list[tuple[object, ...]] = []
    for name, one in found.items():
        if isinstance(one, FirnError):
            rows.append((name, None, None, None, None, "can't be read, see below"))
        else:
            segments = sum(level.segments for level in one.levels)
            rows.append((name, one.topic_partitions, segments, Size(one.bytes), one.max_dirty_ratio, _state(one)))
    show.table("", ("table", "topic partitions", "segments", "bytes", "dirtiest", "state"), rows)
    show.line("`firn status TABLE` shows a table in detail")
    if others:
        show.line(f"not adopted: {', '.join(others)} (`firn adopt --help` says how)")


def _state(status: Status) -> str:
    """The numbers of topic partitions that are blocked, due and waiting, in words."""
    conditions, matters = status.conditions, len(status.matters)
    lanes = (lane for lane in Lane if any(lane in part.due for part in status.partitions))
    told = (
        (matters, f"{'waits' if matters == 1 else 'wait'} for a person"),
        (conditions[PartitionCondition.DUE], f"due ({', '.join(lanes)})"),
        (conditions[PartitionCondition.WAITING], "waiting"),
    )
    return ", ".join(f"{number:,} {what}" for number, what in told if number) or "idle"


def _show(status: Status, limit: int) -> None:
    table, parts = status.table, status.found()[:limit]
    show.table(
        f"{table}: segments",
        ("topic partition", "level", "segments", "records", "bytes", "tombstones"),
        [
            (part.name, f"L{one.level}", one.segments, one.records, Size(one.bytes), one.tombstones)
            for part in parts
            for one in part.levels
        ],
    )
    show.table(
        f"{table}: cleaning",
        ("topic partition", "dirty ratio", "cleanable", "uncleanable", "cleaned through", "condition"),
        [
            (
                part.name,
                part.dirty_ratio,
                Size(part.cleanable_bytes),
                Size(part.uncleanable_bytes),
                # A number that people copy, not an amount.
                None if part.cleaned_through is None else str(part.cleaned_through),
                _condition(part),
            )
            for part in parts
        ],
    )
    show.more(table, status.topic_partitions, limit, "topic partition")
    for part in parts:
        # Each line begins with its topic partition.
        whys = [text if text.startswith(f"{part.name} ") else f"{part.name} {text}" for text in part.why]
        _show_some(part.name, whys, limit, "reason")
    if status.tombstones.oldest_ms is not None:
        show.line(
            f"{table}: {count(status.tombstones.stamped, 'tombstone')} with a delete horizon, kept until that is past; "
            f"the first until {show.moment(status.tombstones.oldest_ms, status.taken_ms)}"
        )
    show_bytes(status, limit)
    _show_some(table, [f"{table}: {text}" for text in status.strays], limit, "file")
    for text in status.doubts:
        show.line(f"{table}: {text}")


def _condition(part: PartitionStatus) -> str:
    """The condition, the due lanes, and the time until time alone makes a lane due."""
    if part.condition in FOR_PEOPLE:
        told = [f"waits for a person ({part.condition})"]
    else:
        told = [] if part.condition == PartitionCondition.DUE else [part.condition.value]
    if part.due:
        told.append(f"due: {', '.join(part.due)}")
    elif part.due_in_ms is not None and part.condition not in FOR_PEOPLE:
        told.append(f"due in {show_span(part.due_in_ms)}")
    return "; ".join(told)


def _show_some(subject: str, lines: list[str], limit: int, noun: str) -> None:
    for text in lines[:limit]:
        show.line(text)
    show.more(subject, len(lines), limit, noun)


def show_bytes(status: Status, limit: int = SHOWN) -> None:
    """Print the bytes of the largest topics and of the table, and the bytes that Firn's commits wrote and saved."""
    table, topics = status.table, status.topics
    largest = sorted(topics, key=lambda topic: (-topic.main_bytes, topic.topic))[:limit]
    show.table(
        f"{table}: bytes",
        ("topic", "main", "side branches"),
        [
            *((one.topic, Size(one.main_bytes), Size(one.side_bytes)) for one in largest),
            ("all", Size(status.main_bytes), Size(status.side_bytes)),
        ],
    )
    if status.side_bytes:
        show.line("side branches: quarantined records, removed tombstones, and what `firn mend` took")
    show.more(table, len(topics), limit, "topic")
    show.line(
        f"{table}: history alone holds {count(status.history_bytes, 'byte')}; expiring snapshots now would free "
        f"{count(status.expirable_bytes, 'byte')}"
    )
    if status.since_ms is not None:
        amplification = status.write_amplification
        show.line(
            f"{table}: since {show_ms(status.since_ms)}, {count(status.landed_bytes, 'byte')} landed; "
            f"compaction wrote {status.written_bytes:,} and saved {status.saved_bytes:,}; write amplification "
            f"{'–' if amplification is None else f'{amplification:.2f}'}"
        )


def explain(
    table: TableName,
    topic_partition: OneTopicPartition = None,
    segment: Annotated[
        str | None,
        typer.Option(
            "--segment",
            metavar="SEGMENT",
            help="The segment: a path, a file name, or <topic>-<partition>@<offset>.",
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="KEY",
            help="The key: text, hex:<digits>, base64:<letters>, or null: for records without a key; commas separate "
            "the values of a composite key.",
        ),
    ] = None,
    partition: Partition = None,
    commits: Annotated[
        int, typer.Option("--commits", min=1, help="Search at most this many commits for removed records.")
    ] = 100,
    limit: Limit = 20,
    now: Now = None,
    as_json: AsJson = False,
) -> None:
    """Explain what is due in a topic partition, which lanes take a segment, or why records of a key are kept.

    The rules that it names, such as C2, are those of Firn's contract (docs/contract.md).
    """
    if sum((topic_partition is not None, segment is not None, bool(key))) != 1:
        raise typer.BadParameter("give exactly one of TOPIC-PARTITION, --segment and --key")
    if key and len(key) > 1:
        raise typer.BadParameter(ONE_KEY)
    lake, now_ms = Lake.load(), at(now)
    if key:
        (text,) = key
        explained = explain_key(lake, table, parse_key(text, key_columns(lake, table)), now_ms, partition, commits)
        show.as_json(explained) if as_json else _show_key(explained, text, now_ms, limit)
    elif topic_partition:
        outlook = next(outlooks(lake, table, now_ms, {topic_partition})[1])
        if as_json:
            show.as_json({"table": table, "lanes": outlook.lanes, "blockers": outlook.obstacles})
        else:
            _show_partition(outlook, now_ms, limit)
    elif segment is not None:
        explanations = explain_segment(lake, table, segment, now_ms)
        if as_json:
            show.as_json(explanations)
        for one in () if as_json else explanations:
            _show_segment(one, now_ms)


def _show_key(explained: KeyExplanation, key: str, now_ms: int, limit: int) -> None:
    show.line(f"{explained.table}: key {key!r}, snapshot {explained.snapshot_id}")
    if not explained.kept:
        show.line("no record of this key is in the table")
    for fates, place in (
        (explained.kept, ""),
        (explained.removed_tombstones, "removed"),
        (explained.mended, f"on branch {MENDED}"),
        (explained.removed, "removed"),
    ):
        _show_fates(explained.table, fates, place, now_ms, limit)
    for path in explained.unreadable:
        show.line(f"{path} on branch {MENDED} may hold records of this key, but can't be read")
    show.line(f"history: {explained.reach}")


def _show_fates(table: str, fates: Iterable[Fate], place: str, now_ms: int, limit: int) -> None:
    """Print records, each with its ``place`` (if it is empty, its file) and the rule that keeps or removed it; those
    that differ only in offset and file are one."""
    alike: dict[tuple[str, tuple[object, ...]], list[Version]] = defaultdict(list)
    for fate in fates:
        record, commit = fate.record, f": {_commit(fate.commit, now_ms)}" if fate.commit else ""
        rule = f"{'' if place else 'kept, '}{_reason(fate.reason, now_ms)}{commit}"
        what = (record.topic_partition, record.level, record.tombstone, record.delete_horizon_ms)
        alike[rule, what].append(record)
    for (rule, _), records in islice(alike.items(), limit):
        files = sorted({record.path for record in records})
        where = place or f"in {files[0] if len(files) == 1 else count(len(files), 'file')}"
        show.line(f"{_records(records, now_ms)}, {where}")
        show.line(f"  {rule}")
    show.more(table, len(alike), limit, "explanation")


def _show_partition(outlook: Outlook, now_ms: int, limit: int) -> None:
    table, state = outlook.sensed.segments.identifier, outlook.state
    head_bytes = state.cleanable_bytes + state.uncleanable_bytes
    through = state.cleaned_through
    cleaned = "not cleaned yet" if through is None else f"cleaned through offset {through}"
    show.line(
        f"{table}: {state.topic_partition}, head of {count(len(state.head), 'segment')} with "
        f"{count(head_bytes, 'byte')} ({state.cleanable_bytes:,} cleanable), tail of "
        f"{count(len(state.tail), 'segment')} with {count(state.tail_bytes, 'byte')}, dirty ratio "
        f"{dirty_ratio(state):.3f}, {cleaned}, log end offset {state.log_end_offset}"
    )
    for lane in outlook.lanes:
        reason = _reason(lane.reason, now_ms)
        if lane.plan:
            show.line(f"  {lane.lane}: due, {count(lane.segments, 'segment')} (plan {lane.plan}), {reason}")
        else:
            clock = "" if lane.next_ms is None else f"; due at {show.moment(lane.next_ms, now_ms)}"
            blocked = "blocked" if lane.reason.rule == "C20" else "not due"
            show.line(f"  {lane.lane}: {blocked}, {reason}{clock}")
    for blocker in outlook.obstacles[:limit]:
        show.line(f"  blocked by {_reason(blocker, now_ms)}")
    show.more(str(state.topic_partition), len(outlook.obstacles), limit, "blocker")


def _hidden(segment: Segment) -> str:
    """The row-level deletes that apply to the segment, in words."""
    if not segment.row_deletes:
        return ""
    hidden = "some records" if segment.hidden is None else f"at most {count(segment.hidden, 'record')}"
    return f", {hidden} hidden by {count(segment.row_deletes, 'row-level delete file')}"


def _show_segment(explained: SegmentExplanation, now_ms: int) -> None:
    item = explained.segment
    show.line(f"{explained.table}: segment {item}")
    if isinstance(item, Segment):
        newest = show.moment(item.newest_ms, now_ms)
        tombstones = "tombstones unknown" if item.tombstones is None else count(item.tombstones, "tombstone")
        show.line(
            f"  {count(item.records, 'record')}, {count(item.bytes, 'byte')}, {tombstones}, "
            f"{item.null_keys:,} without a key, newest record from {newest}{_hidden(item)}"
        )
    for going in explained.going:
        show.line(f"  due now in lane {going.lane}: {going.reason.text} (plan {going.plan})")
    for reason in explained.waiting:
        show.line(f"  {_reason(reason, now_ms)}")
    if explained.removed_by:
        show.line(f"  no longer live: removed by {_commit(explained.removed_by, now_ms)}")


def _records(records: Sequence[Version], now_ms: int) -> str:
    """What ``records`` that are alike have in common, with their offsets."""
    first, offsets = records[0], [record.offset for record in records]
    at_offsets = f"offset {min(offsets)}" if len(set(offsets)) == 1 else f"offsets {min(offsets)} to {max(offsets)}"
    told = [f"{first.topic_partition} {at_offsets}"]
    if len(records) > 1:
        told.append(count(len(records), "record"))
    if first.level >= LANDED:
        told.append(f"level {first.level}")
    if first.tombstone:
        told.append("a tombstone" if len(records) == 1 else "tombstones")
    if first.delete_horizon_ms is not None:
        told.append(f"delete horizon {show.moment(first.delete_horizon_ms, now_ms)}")
    return ", ".join(told)


def _reason(reason: Reason, now_ms: int) -> str:
    until = "" if reason.until_ms is None else f", until {show.moment(reason.until_ms, now_ms)}"
    return f"{reason.rule}: {reason.text}{until}"


def _commit(commit: RemovingCommit, now_ms: int) -> str:
    return f"snapshot {commit.snapshot_id} of {show.moment(commit.at_ms, now_ms)} ({commit.by})"
