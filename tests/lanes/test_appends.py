"""A writer that knows nothing of Firn appends while the table is maintained (C22)."""

import threading

from pyiceberg.exceptions import CommitFailedException

from tests.support.publishing import publish
from tests.support.topics import Record, Topic, updates


def test_c22_an_appender_goes_on_during_compaction(topic: Topic) -> None:
    """Appends before, between and during the commits are all there afterwards, and none of them failed."""
    topic.land(*(updates("a=1", "b=1", start=2 * part) for part in range(4)))
    stop = threading.Event()
    appended: list[int] = []
    conflicts: list[Exception] = []

    def append() -> None:
        offset = 1000
        while not stop.is_set():
            try:
                topic.append([Record(offset, b"live", b"%d" % offset)])
            except CommitFailedException as error:
                conflicts.append(error)
            else:
                appended.append(offset)
            offset += 1

    appender = threading.Thread(target=append)
    appender.start()
    try:
        stages = topic.validated(topic.plans("full"))
        published = [publish(topic.lake, stage) for stage in stages]
    finally:
        stop.set()
        appender.join()
    assert conflicts == []
    assert len(appended) > 3
    seen = topic.offsets()
    taken = {segment.last_offset for segment in topic.segments() if segment.level == 3}
    assert set(appended) - set(seen) <= set(range(1000, max(taken) + 1)), "only what the plan took can be superseded"
    assert {6, 7} <= set(seen)
    assert published[0].counts is not None
