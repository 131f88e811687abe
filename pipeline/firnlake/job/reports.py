"""What the data-quality pages tell of a table, as documents below its metadata folder.

Whoever judges plans stores one document, which holds files for the folder of the reports by their paths there: verdicts
and Great Expectations' results. Whoever builds pages copies these files first, so that
machines without a common folder show the same pages, and the folder of the reports can be deleted at any time. A
table that was dropped and made again has another UUID, and so other documents.
"""

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError
from pyiceberg.table import Table

from firnlake.iceberg.files import REPORTS_FOLDER, files_in, metadata_folder, name_of, store, write_whole
from firnlake_expectations.data_quality import PLANS, RESULTS, VERDICTS, write_page
from firnlake_expectations.temporary import temporary_folder
from firnlake_expectations.wording import file_name

NEWEST: Final = 2_000
"""Maximum number of documents of a table that are copied: the newest ones."""
COPIED: Final = "copied"
"""Folder below the reports with a list of the files that were copied from each document."""
_FILES: Final = TypeAdapter(dict[str, str])
_NAME: Final = r"[\w%-][\w.:%+-]*"
_PATH: Final = re.compile(rf"{VERDICTS}/{_NAME}\.json|{RESULTS}(?:/{_NAME})+\.json", re.ASCII)
"""What may be copied: no path leads out of the folder of the reports."""


@contextmanager
def new_reports(table: Table) -> Iterator[Path]:
    """A temporary folder for reports on ``table``; what the block has written there is stored when it ends.

    Raises an OSError when the store does not take the document.
    """
    with temporary_folder() as name:
        yield Path(name)
        files = {path.relative_to(name).as_posix(): path.read_text("utf-8") for path in Path(name).rglob("*.json")}
        if files:
            document = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{uuid.uuid4().hex[:8]}.json"
            write_whole(table, f"{metadata_folder(table)}/{REPORTS_FOLDER}/{document}", _FILES.dump_json(files))


def copy_reports(table: Table, identifier: str, reports: Path) -> None:
    """Make the folder ``reports`` tell of the table ``identifier`` what its documents tell, and nothing else.

    A document that can't be read is left out. Raises an OSError when the store or the folder does not answer.
    """
    location = f"{metadata_folder(table)}/{REPORTS_FOLDER}"
    listed = {name_of(one.path) for one in files_in(*store(table, location)) if one.path.endswith(".json")}
    wanted = sorted(listed, reverse=True)[:NEWEST]
    folder = reports / COPIED / file_name(identifier) / str(table.metadata.table_uuid)
    for path in folder.parent.glob("*/*.json"):
        if path.parent != folder or path.name not in listed:
            _forget(reports, path)
    for name in wanted:
        if not (folder / name).exists():
            with suppress(FileNotFoundError, ValidationError):
                with table.io.new_input(f"{location}/{name}").open() as stream:
                    files = _FILES.validate_json(stream.read())
                copied = [path for path in files if _PATH.fullmatch(path)]
                for one in copied:
                    write_page(reports / one, files[one])
                write_page(folder / name, json.dumps(copied))


def _forget(reports: Path, copied: Path) -> None:
    """Delete what was copied from a document that is gone, and the pages that were made of it."""
    with suppress(ValueError, TypeError):  # somebody has changed the list
        for path in filter(_PATH.fullmatch, map(str, json.loads(copied.read_text("utf-8")))):
            (reports / path).unlink(missing_ok=True)
            if path.startswith(f"{VERDICTS}/"):
                (reports / PLANS / path.removeprefix(f"{VERDICTS}/")).with_suffix(".html").unlink(missing_ok=True)
    copied.unlink()
