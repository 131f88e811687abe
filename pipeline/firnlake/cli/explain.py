"""Subcommand ``explain``: the reasons for the state of a record, a segment or a topic partition."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Annotated, Any

import typer

from firnlake.cli import show
from firnlake.cli.keys import ONE_KEY, key_columns, parse_key
from firnlake.cli.options import AsJson, Limit, Now, Partition, TableName, at
from firnlake.iceberg.branches import MENDED
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.explain_key import Fate, KeyExplanation, explain_key
from firnlake.inspect.outlook import Outlook, Removal, SegmentExplanation, explain_segment, outlooks
from firnlake.inspect.versions import Version
from firnlake.lanes.answer import Reason
from firnlake.table.segment import LANDED, Segment
from firnlake.table.topic_partition import TopicPartition
from firnlake_expectations.wording import count


def explain(
    table: TableName,
    topic_partition: Annotated[
        TopicPartition | None,
        typer.Argument(
            parser=TopicPartition.parse, metavar="[TOPIC-PARTITION]", help="The topic partition, for example orders-0."
        ),
    ] = None,
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
        outlook = outlooks(lake, table, now_ms, {topic_partition})[1][topic_partition]
        show.as_json(_facts(outlook)) if as_json else _show_partition(outlook, now_ms, limit)
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
        show.message(f"  {rule}")
    show.more(table, len(alike), limit, "explanation")


def _facts(outlook: Outlook) -> dict[str, Any]:
    """A topic partition as JSON shows it. Offsets are inclusive; bytes are file sizes."""
    state = outlook.state
    return {
        "table": outlook.segments.identifier,
        "topic_partition": state.topic_partition,
        "head_segments": len(state.head),
        "head_bytes": state.cleanable_bytes + state.uncleanable_bytes,
        "cleanable_bytes": state.cleanable_bytes,
        "tail_segments": len(state.tail),
        "tail_bytes": state.tail_bytes,
        "dirty_ratio": state.dirty_ratio,
        "cleaned_through": state.cleaned_through,
        "log_end_offset": state.log_end_offset,
        "lanes": outlook.lanes,
        "blockers": outlook.obstacles,
    }


def _show_partition(outlook: Outlook, now_ms: int, limit: int) -> None:
    state, head_bytes = outlook.state, outlook.state.cleanable_bytes + outlook.state.uncleanable_bytes
    through = state.cleaned_through
    cleaned = "not cleaned yet" if through is None else f"cleaned through offset {through}"
    show.line(
        f"{outlook.segments.identifier}: {state.topic_partition}, head of {count(len(state.head), 'segment')} with "
        f"{count(head_bytes, 'byte')} ({state.cleanable_bytes:,} cleanable), tail of "
        f"{count(len(state.tail), 'segment')} with {count(state.tail_bytes, 'byte')}, dirty ratio "
        f"{state.dirty_ratio:.3f}, {cleaned}, log end offset {state.log_end_offset}"
    )
    for lane in outlook.lanes:
        reason = _reason(lane.reason, now_ms)
        if lane.plan:
            show.message(f"  {lane.lane}: due, {count(lane.segments, 'segment')} (plan {lane.plan}), {reason}")
        else:
            clock = "" if lane.next_ms is None else f"; due at {show.moment(lane.next_ms, now_ms)}"
            blocked = "blocked" if lane.reason.rule == "C20" else "not due"
            show.message(f"  {lane.lane}: {blocked}, {reason}{clock}")
    for blocker in outlook.obstacles[:limit]:
        show.message(f"  blocked by {_reason(blocker, now_ms)}")
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
        show.message(f"  {_reason(reason, now_ms)}")
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


def _commit(commit: Removal, now_ms: int) -> str:
    return f"snapshot {commit.snapshot_id} of {show.moment(commit.at_ms, now_ms)} ({commit.by})"
