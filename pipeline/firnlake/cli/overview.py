"""Subcommands ``status`` and ``checkpoint``: all tables in one list, one table in detail, and its cleaning progress."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from firnlake.cli import show
from firnlake.cli.options import AsJson, Limit, Now, TableName, at
from firnlake.cli.show import Size
from firnlake.clock import show_span
from firnlake.errors import FirnError
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.checkpoint import checkpoint_text, write_checkpoint
from firnlake.inspect.gather import each_status, status_of
from firnlake.inspect.status import FOR_PEOPLE, PartitionCondition, PartitionStatus, Space, Status
from firnlake.job.lane import Lane
from firnlake_expectations.wording import count

SHOWN: Final = 20
"""Number of topic partitions, topics and reasons that are printed, unless --limit says otherwise."""
_UNKNOWN: Final = {
    "tombstones": "a condition on columns says which records are tombstones, and metadata does not count them",
    "cleaned through": "nothing is cleaned yet",
    "compactable (estimate)": "no cleaning is known from which to estimate",
}
"""What a dash means, by heading."""


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
    if as_json:
        show.as_json([_document(name, one) for name, one in found.items()])
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


def checkpoint(
    table: TableName,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="Write the text to FILE instead; replaces FILE atomically."),
    ] = None,
) -> None:
    """Print how far each topic partition is cleaned, in the format of Kafka's cleaner-offset-checkpoint.

    A topic whose name Kafka does not allow is left out and named.
    """
    text, odd = checkpoint_text(Lake.load(), table)
    if output:
        write_checkpoint(text, output)
    else:
        print(text, end="")
    show.end(odd)


def _document(name: str, found: Status | FirnError) -> dict[str, Any]:
    return found.model_dump(mode="json") if isinstance(found, Status) else {"table": name, "error": str(found)}


def _nothing(lake: Lake) -> str:
    if lake.exists:
        return f"catalog {lake.name} ({lake.address}) has no table that Firn can maintain"
    return f"there is no catalog {lake.address} yet: `firn create` makes it; FIRN_HOME chooses another lake's folder"


def _show_all(found: Mapping[str, Status | FirnError], others: Sequence[str]) -> None:
    show.table(
        "",
        ("table", "topic partitions", "segments", "bytes", "dirtiest", "state"),
        [(name, *(_figures(one) if isinstance(one, Status) else _UNREADABLE)) for name, one in found.items()],
    )
    show.line("`firn status TABLE` shows a table in detail")
    if others:
        show.line(f"not adopted: {', '.join(others)} (`firn adopt --help` says how)")


_UNREADABLE: Final = (None, None, None, None, "can't be read, see below")


def _figures(status: Status) -> tuple[object, ...]:
    segments = sum(level.segments for level in status.levels)
    return (status.topic_partitions, segments, Size(status.bytes), status.max_dirty_ratio, _state(status))


def _state(status: Status) -> str:
    """The numbers of topic partitions that are blocked, due and waiting, in words."""
    conditions, matters = status.conditions, len(status.matters)
    lanes = (lane for lane in Lane if lane in status.due_lanes)
    told = (
        (matters, f"{'waits' if matters == 1 else 'wait'} for a person"),
        (conditions[PartitionCondition.DUE], f"due ({', '.join(lanes)})"),
        (conditions[PartitionCondition.WAITING], "waiting"),
    )
    return ", ".join(f"{number:,} {what}" for number, what in told if number) or "idle"


def _show(status: Status, limit: int) -> None:
    table, parts = status.table, status.worst(limit)
    show.table(
        f"{table}: segments",
        ("topic partition", "level", "segments", "records", "bytes", "tombstones"),
        [
            (part.name, f"L{one.level}", one.segments, one.records, Size(one.bytes), one.tombstones)
            for part in parts
            for one in part.levels
        ],
        _UNKNOWN,
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
        _UNKNOWN,
    )
    show.more(table, status.topic_partitions, limit, "topic partition")
    for part in parts:
        _show_some(part.name, _reasons(part), limit, "reason")
    _show_horizons(status)
    show_bytes(status, limit)
    kept = [part.retained for part in parts if part.retained]
    if kept:
        show.line(f"{table}: retention; the oldest segment that is kept, and why")
    for text in kept:
        show.line(f"  {text}")
    show.line(f"{table}: thresholds")
    for text in status.thresholds:
        show.line(f"  {text}")
    _show_some(table, [f"{table}: {text}" for text in status.strays], limit, "file")
    for text in status.doubts:
        show.message(f"{table}: {text}")


def _show_horizons(status: Status) -> None:
    """Print until when tombstones are kept, as far as cleanings have decided it (C8)."""
    tombstones, now_ms = status.tombstones, status.taken_ms
    if tombstones.oldest_ms is not None:
        show.message(
            f"{status.table}: {count(tombstones.stamped, 'tombstone')} with a delete horizon, kept until that is past; "
            f"the first until {show.moment(tombstones.oldest_ms, now_ms)}"
        )


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


def _reasons(part: PartitionStatus) -> list[str]:
    """Why lanes are due and segments wait, in lines that each begin with the topic partition."""
    return [text if text.startswith(f"{part.name} ") else f"{part.name} {text}" for text in part.why]


def _show_some(subject: str, lines: list[str], limit: int, noun: str) -> None:
    for text in lines[:limit]:
        show.message(text)
    show.more(subject, len(lines), limit, noun)


def show_bytes(status: Status, limit: int = SHOWN) -> None:
    """Print the bytes of the largest topics and of the table, and the bytes that Firn's commits wrote and saved."""
    table, space, topics = status.table, status.space, status.topics
    largest = sorted(topics, key=lambda topic: (-topic.main_bytes, topic.topic))[:limit]
    show.table(
        f"{table}: bytes",
        ("topic", "main", "side branches", "compactable (estimate)"),
        [(name, *_sizes(one)) for name, one in (*((one.topic, one) for one in largest), ("all", space))],
        _UNKNOWN,
    )
    if space.side_bytes:
        show.line("side branches: quarantined records, removed tombstones, and what `firn mend` took")
    show.more(table, len(topics), limit, "topic")
    show.message(
        f"{table}: history alone holds {count(space.history_bytes, 'byte')}; expiring snapshots now would free "
        f"{count(space.expirable_bytes, 'byte')}"
    )
    if status.since_ms is not None:
        amplification = status.write_amplification
        show.message(
            f"{table}: since {show.time(status.since_ms)}, {count(status.landed_bytes, 'byte')} landed; "
            f"compaction wrote {status.written_bytes:,} and saved {status.saved_bytes:,}; write amplification "
            f"{'–' if amplification is None else f'{amplification:.2f}'}"
        )


def _sizes(space: Space) -> Iterable[Size | None]:
    sizes = (space.main_bytes, space.side_bytes, space.compactable_bytes)
    return [None if size is None else Size(size) for size in sizes]
