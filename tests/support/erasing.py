"""Requests to erase keys of a topic under test, and what is known of them."""

from typing import Any

from firnlake import clock
from firnlake.job.lane import Lane
from firnlake.lanes.erasure.ask import ask
from firnlake.lanes.erasure.certify import Certified, certify
from firnlake.lanes.erasure.requests import Erasure, Request, erasures_of
from firnlake.maintain.maintain import maintain_table
from tests.support.topics import DAY, NOW, Topic


def request(topic: Topic, *keys: bytes, now: int = NOW, within_ms: int = 30 * DAY) -> Request:
    """Request that ``keys`` are erased from ``topic``."""
    return ask(topic.lake, topic.table, [(key,) for key in keys], now, topic.name, within_ms)


def erasures(topic: Topic) -> tuple[Erasure, ...]:
    """What the table knows of its requests now."""
    return erasures_of(topic.lake.table(topic.table))


def certificates(topic: Topic) -> list[dict[str, Any]]:
    """The certificates in the warehouse."""
    return [dict(erasure.certificate) for erasure in erasures(topic) if erasure.certificate is not None]


def erased(topic: Topic, *keys: bytes) -> Request:
    """Erase ``keys`` from main by now, and let maintenance run at the time when older snapshots expire."""
    topic.lake.set_properties(topic.table, {"firn.erase.history": "expire"})
    asked = request(topic, *keys, now=clock.now_ms(), within_ms=4 * DAY)
    topic.clean(Lane.ERASE, clock.now_ms(), force=True)
    maintain_table(topic.lake, topic.table, asked.deadline_ms - 2 * DAY + 1, remove=True)
    return asked


def certified(topic: Topic, *requests: str) -> Certified:
    """Search the table now, and issue what certificates of ``requests``, by default all, can be issued."""
    return certify(topic.lake, topic.table, clock.now_ms(), topic.engine, requests)
