"""Row-level deletes by offset."""

from tests.support.row_deletes import delete_at, delete_files, places
from tests.support.topics import Topic


def delete(topic: Topic, *offsets: int, bounds: bool = True) -> list[str]:
    """Hide the records with these offsets, as merge-on-read does; the paths of the delete files."""
    return delete_at(topic.lake, topic.table, places(topic.lake, topic.table, offsets), bounds=bounds)


def deletes(topic: Topic) -> set[str]:
    return delete_files(topic.lake.table(topic.table))
