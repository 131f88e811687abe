"""Damage to the files of a topic under test, and mendings of it."""

from collections.abc import Sequence
from pathlib import Path

from firnlake.iceberg.branches import MENDED, on_branch
from firnlake.maintain.mend import NamedFiles, mend, named_files
from infra.foreign.files import on_disk
from tests.support.lakes import paths
from tests.support.topics import Topic, updates


def tear(path: str) -> Path:
    """Cut the end of the file off, as a writer does that died."""
    file = on_disk(path)
    file.write_bytes(file.read_bytes()[:-200])
    return file


def lose(path: str) -> Path:
    """Delete the file, as a rule of the store does."""
    file = on_disk(path)
    file.unlink()
    return file


def shown(topic: Topic, *files: str) -> NamedFiles:
    """What a person is shown of ``files``."""
    return named_files(topic.lake, topic.table, files)


def take(topic: Topic, *files: str) -> int | None:
    """Take ``files`` from main; the snapshot that does it."""
    return mend(topic.lake, shown(topic, *files))


def held(topic: Topic) -> set[str]:
    """The data files on the branch of mended files."""
    return paths(on_branch(topic.lake.table(topic.table), MENDED))


def head(topic: Topic) -> str:
    """The metadata file of the table as it is now."""
    return topic.lake.table(topic.table).metadata_location


def landed(topic: Topic, *batches: Sequence[str]) -> list[str]:
    """Land a segment of orders-0 for each of ``batches`` (``key=value``), one after the other; their paths."""
    start = 0
    for batch in batches:
        topic.land(updates(*batch, start=start))
        start += len(batch)
    return [one.path for one in topic.segments()]
