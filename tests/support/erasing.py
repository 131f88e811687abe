"""Requests to erase keys of a topic under test, and what is known of them."""

from firnlake import clock
from firnlake.lanes.erasure.ask import ask
from firnlake.lanes.erasure.certify import Certified, certify
from firnlake.lanes.erasure.requests import Erasure, Request, erasures_of
from tests.support.topics import DAY, NOW, Topic


def request(topic: Topic, *keys: bytes, now: int = NOW, within_ms: int = 30 * DAY) -> Request:
    """Request that ``keys`` are erased from ``topic``."""
    return ask(topic.lake, topic.table, [(key,) for key in keys], now, topic.name, within_ms)


def erasures(topic: Topic) -> tuple[Erasure, ...]:
    """What the table knows of its requests now."""
    return erasures_of(topic.lake.table(topic.table))


def certified(topic: Topic, *requests: str) -> Certified:
    """Search the table now, and issue what certificates of ``requests``, by default all, can be issued."""
    return certify(topic.lake, topic.table, clock.now_ms(), topic.engine, requests)
