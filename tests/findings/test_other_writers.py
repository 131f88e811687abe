"""R21: what other writers look up in snapshot summaries gives the same after a publication and an expiry of Firn.

The models are those of the trials, each of which names the source file that it follows.
"""

from collections.abc import Iterator

import pytest
from pyiceberg.table import Table

from firnlake import clock
from firnlake.maintain.maintain import MaintenancePart, maintain_table
from tests.nightly.trials.lookups import WRITERS, Summary, Writer
from tests.support.other_lives import head
from tests.support.topics import DAY, Topic, foreign_rows, updates

COMMIT = 42
REDPANDA = "Redpanda"
"""It keeps a tag on its newest commit."""


def _line(table: Table) -> Iterator[Summary]:
    """The summaries from main's head back to the first snapshot whose parent has expired."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot.summary.additional_properties if snapshot.summary else {}
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id or 0)


def by_name(writer: object) -> str:
    assert isinstance(writer, Writer)
    return writer.name


def write(topic: Topic, writer: Writer) -> None:
    """Append as the writer does, to a table with a little history."""
    topic.land(updates("a=1", "b=1"))
    table = topic.lake.table(topic.table)
    table.append(foreign_rows(topic.arrow(updates("a=2", start=2))), snapshot_properties=writer.properties(COMMIT))
    if writer.name == REDPANDA:
        topic.lake.table(topic.table).manage_snapshots().create_tag(head(topic), "redpanda.tag").commit()


@pytest.mark.parametrize("writer", WRITERS, ids=by_name)
def test_r21_a_publication_hides_no_writers_progress(topic: Topic, writer: Writer) -> None:
    write(topic, writer)
    topic.clean("full", force=True)
    assert writer.look_up(_line(topic.lake.table(topic.table))) == str(COMMIT)


@pytest.mark.parametrize("writer", WRITERS, ids=by_name)
def test_r21_an_expiry_removes_no_writers_progress(topic: Topic, writer: Writer) -> None:
    write(topic, writer)
    for start in (3, 4):
        topic.append(updates("c=1", start=start))
    topic.clean("full", force=True)
    maintain_table(topic.lake, topic.table, clock.now_ms() + 6 * DAY, remove=True, parts={MaintenancePart.SNAPSHOTS})
    assert writer.look_up(_line(topic.lake.table(topic.table))) == str(COMMIT)
