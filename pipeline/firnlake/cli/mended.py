"""Output of ``firn mend --list``: what mendings took from main."""

from firnlake.cli import show
from firnlake.iceberg.branches import MENDED
from firnlake.iceberg.catalog import Lake
from firnlake.maintain.mended import MendedFile, MendedParts, MendedRecord, mended
from firnlake_expectations.wording import count

OUTCOMES = {
    "kept": f"on branch {MENDED}, until somebody drops the branch",
    "dropped": f"no longer on branch {MENDED}",
    "lost": "lost",
}


def show_mended(lake: Lake, table: str, as_json: bool) -> None:
    """Print what mendings took from main of ``table``, newest mending first."""
    listed = mended(lake, table)
    if as_json:
        show.as_json([_document(one) for one in listed])
    elif not listed:
        show.line(f"{table}: nothing was mended")
    else:
        for one in listed:
            _show(table, one)


def _show(table: str, one: MendedParts) -> None:
    unknown = f"on branch {MENDED}, but no summary tells any more when it was taken"
    show.line(f"{table}: {f'taken by {one.mending}' if one.mending else unknown}:")
    for file in one.files:
        show.line(f"  {file.path}")
        show.line(f"    {_holding(file)}{OUTCOMES[file.outcome]}")
    for record in one.records:
        told = [f"{record.topic_partition} offset {record.offset}", record.digest, record.shown]
        show.line(f"  {' '.join(filter(None, told))}")
        source = f"from {' or '.join(record.paths)}; " if record.paths else ""
        show.line(f"    {source}{OUTCOMES[_outcome(record)]}")


def _holding(file: MendedFile) -> str:
    one = file.segment
    if one is None:
        return ""
    offsets = f"offsets {one.base_offset} to {one.last_offset}" if one.base_offset >= 0 else "unknown offsets"
    return f"{one.topic_partition}, {offsets}, {count(one.records, 'record')}; "


def _outcome(record: MendedRecord) -> str:
    return "dropped" if record.digest is None else "kept"


def _document(one: MendedParts) -> dict[str, object]:
    mending = one.mending
    return {
        "snapshot_id": mending.snapshot_id if mending else None,
        "branch_snapshot_id": mending.branch_snapshot_id if mending else None,
        "at": show.time(mending.at_ms) if mending else None,
        "files": [_file(file) for file in one.files],
        "records": [
            {
                "topic_partition": record.topic_partition,
                "offset": record.offset,
                "files": record.paths,
                "digest": record.digest,
                "shown": record.shown or None,
                "outcome": _outcome(record),
            }
            for record in one.records
        ],
    }


def _file(file: MendedFile) -> dict[str, object]:
    one = file.segment
    is_known = one is not None and one.base_offset >= 0
    return {
        "path": file.path,
        "topic_partition": str(one.topic_partition) if one else None,
        "base_offset": one.base_offset if one and is_known else None,
        "last_offset": one.last_offset if one and is_known else None,
        "records": one.records if one else None,
        "outcome": file.outcome,
    }
