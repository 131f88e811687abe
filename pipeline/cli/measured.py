"""Shows the space of a table and Firn's work on it, below its status."""

from pipeline.cli import show
from pipeline.status import Status
from pipeline.status.document import Space, TableSpace

_OF_SPACE = {
    "main": "main_bytes",
    "side branches": "side_bytes",
    "history only": "history_bytes",
    "expirable now": "expirable_bytes",
    "compactable, about": "compactable_bytes",
}
"""Figures printed for a topic, by heading."""


def show_space(status: Status) -> None:
    """Print the bytes of each topic and of the table, write amplification and bytes saved."""
    summary = status.summary
    rows: list[tuple[str, Space]] = [(topic.topic, topic) for topic in status.details().topics]
    show.table(
        f"{status.table}: bytes",
        ("topic", *_OF_SPACE),
        [
            (name, *(getattr(space, figure) for figure in _OF_SPACE.values()))
            for name, space in (*rows, ("all", summary.space))
        ],
    )
    for text in _inexact(summary.space):
        show.line(f"{status.table}: {text}")
    if summary.since_ms is not None:
        amplification = summary.write_amplification
        show.line(
            f"{status.table}: since {show.time(summary.since_ms)} {summary.landed_bytes:,} bytes landed, compaction "
            f"wrote {summary.written_bytes:,} and saved {summary.saved_bytes:,}; write amplification "
            f"{'–' if amplification is None else f'{amplification:.2f}'}"
        )


def _inexact(space: TableSpace) -> list[str]:
    notes = []
    if not space.history_is_exact:
        notes.append("what history holds is about that: snapshots, or sizes in their summaries, are missing")
    if not space.expirable_is_exact:
        notes.append("what is expirable is about that, rather more: tags and branches may share less than they could")
    if space.unread_commits:
        notes.append(
            f"topics lack the files that {space.unread_commits:,} commits removed, whose manifests are not read yet; "
            "each status reads some"
        )
    return notes
