"""Subcommand ``explain``: the reasons for the state of a record, a segment or a topic partition."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any

import typer

from firnlake.cli import show
from firnlake.cli.options import AsJson, Now, Partition, TableName, at
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.explain.holds import Reason
from firnlake.inspect.explain.key import KeyExplanation, explain_key
from firnlake.inspect.explain.partition import (
    Commit,
    PartitionExplanation,
    SegmentExplanation,
    explain_partition,
    explain_segment,
)
from firnlake.inspect.explain.versions import Version, parse_key
from firnlake.table.segment import LANDED, Segment
from firnlake.table.topic_partition import TopicPartition


def explain(
    table: TableName,
    topic_partition: Annotated[
        TopicPartition | None,
        typer.Argument(parser=TopicPartition.parse, metavar="[TOPIC-PARTITION]", help="For example orders-0."),
    ] = None,
    segment: Annotated[
        str | None,
        typer.Option("--segment", metavar="SEGMENT", help="A path, a file name, or <topic>-<partition>@<offset>."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="KEY",
            help="Text, hex:<digits>, base64:<letters>, or null: for no key; once per column of a composite key.",
        ),
    ] = None,
    partition: Partition = None,
    commits: Annotated[
        int, typer.Option("--commits", min=1, help="Search at most this many commits for removed records.")
    ] = 100,
    now: Now = None,
    as_json: AsJson = False,
) -> None:
    """Explain what is due for a topic partition, where a segment goes next, or why the records of a key were kept."""
    if sum((topic_partition is not None, segment is not None, bool(key))) != 1:
        raise typer.BadParameter("give exactly one of TOPIC-PARTITION, --segment and --key")
    lake, now_ms = Lake.load(), at(now)
    if key:
        explained = explain_key(lake, table, parse_key(key), now_ms, partition, commits)
        if as_json:
            show.as_json(_document(explained))
        else:
            _show_key(explained, key, now_ms)
    elif topic_partition:
        outlook = explain_partition(lake, table, topic_partition, now_ms)
        show.as_json(_document(outlook)) if as_json else _show_partition(outlook, now_ms)
    elif segment is not None:
        explanation = explain_segment(lake, table, segment, now_ms)
        if as_json:
            show.as_json([_document(one) for one in explanation])
        else:
            for one in explanation:
                _show_segment(one, now_ms)


def _show_key(explained: KeyExplanation, key: list[str], now_ms: int) -> None:
    show.line(f"{explained.table}: key {', '.join(map(repr, key))}, snapshot {explained.snapshot_id}")
    for kept in explained.kept:
        show.line(f"{_record(kept.record, now_ms)}, in {kept.record.path}")
        show.line(f"  kept by {_reason(kept.reason, now_ms)}")
    if not explained.kept:
        show.line("no record of this key is in the table")
    for version in explained.removed_tombstones:
        show.line(f"{_record(version, now_ms)}, removed")
        show.line("  C9: kept on a side branch: it is restored if an older record of its key lands")
    for removed in explained.removed:
        show.line(f"{_record(removed.record, now_ms)}, removed")
        show.line(f"  {_reason(removed.reason, now_ms)}: {_commit(removed.commit, now_ms)}")
    show.line(f"history: {explained.reach}")


def _show_partition(explained: PartitionExplanation, now_ms: int) -> None:
    show.line(
        f"{explained.table}: {explained.topic_partition}, head {explained.head_segments:,} segments of "
        f"{explained.head_bytes:,} bytes ({explained.cleanable_bytes:,} cleanable), tail {explained.tail_segments:,} "
        f"of {explained.tail_bytes:,}, dirty ratio {explained.dirty_ratio:.3f}, cleaned through "
        f"{'nothing' if explained.cleaned_through is None else explained.cleaned_through}, log end "
        f"{explained.log_end_offset}"
    )
    for outlook in explained.lanes:
        reason = _reason(outlook.reason, now_ms)
        if outlook.plan:
            show.line(f"  {outlook.lane}: due, {outlook.segments:,} segments (plan {outlook.plan}), {reason}")
        else:
            clock = "" if outlook.next_ms is None else f"; due at {show.moment(outlook.next_ms, now_ms)}"
            show.line(f"  {outlook.lane}: not due, {reason}{clock}")
    for blocker in explained.blockers:
        show.line(f"  blocked by {_reason(blocker, now_ms)}")


def _hidden(segment: Segment) -> str:
    """The row-level deletes of other writers in words."""
    if not segment.row_deletes:
        return ""
    hidden = "some" if segment.hidden is None else f"at most {segment.hidden:,}"
    return f", {hidden} hidden by {segment.row_deletes:,} row-level delete files"


def _show_segment(explained: SegmentExplanation, now_ms: int) -> None:
    item = explained.segment
    show.line(f"{explained.table}: segment {item}")
    if isinstance(item, Segment):
        newest = show.moment(item.newest_ms, now_ms)
        show.line(
            f"  {item.records:,} records, {item.bytes:,} bytes, {item.tombstones:,} tombstones, {item.null_keys:,} "
            f"without a key, newest record of {newest}{_hidden(item)}"
        )
    for going in explained.going:
        show.line(f"  goes with {going.lane} now: {going.reason} (plan {going.plan})")
    for reason in explained.waiting:
        show.line(f"  {_reason(reason, now_ms)}")
    if explained.removed_by:
        show.line(f"  no longer live: removed by {_commit(explained.removed_by, now_ms)}")


def _record(version: Version, now_ms: int) -> str:
    told = [f"{version.topic_partition} offset {version.offset}"]
    if version.level >= LANDED:
        told.append(f"level {version.level}")
    if version.tombstone:
        told.append("a tombstone")
    if version.delete_horizon_ms is not None:
        told.append(f"delete horizon {show.moment(version.delete_horizon_ms, now_ms)}")
    return ", ".join(told)


def _reason(reason: Reason, now_ms: int) -> str:
    until = "" if reason.until_ms is None else f", until {show.moment(reason.until_ms, now_ms)}"
    return f"{reason.rule}: {reason.text}{until}"


def _commit(commit: Commit, now_ms: int) -> str:
    who = f"lane {commit.lane}, plan {commit.plan}: {commit.reason}" if commit.plan else f"not Firn, {commit.operation}"
    return f"snapshot {commit.snapshot_id} of {show.moment(commit.at_ms, now_ms)} ({who})"


def _document(part: Any) -> Any:
    """``part`` in JSON types: times in ISO 8601 under their name without ``_ms``, bytes in hexadecimal."""
    match part:
        case TopicPartition():
            return str(part)
        case bytes():
            return {"text": show.excerpt(part), "hex": part.hex()}
        case Mapping():
            return {str(name): _document(value) for name, value in part.items()}
        case list() | tuple():
            return [_document(one) for one in part]
    if not is_dataclass(part):
        return part
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    return {
        name.removesuffix("_ms"): show.time(value) if name.endswith("_ms") and value is not None else _document(value)
        for name, value in values.items()
    }
