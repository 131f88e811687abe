"""The keys that requests name are found among others, and each request is told apart (C30)."""

import hmac
from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from firnlake.lanes.erasure.read import KeyMatcher
from firnlake.lanes.erasure.requests import Request
from firnlake.table.topic_partition import TopicPartition

SECRET = b"s" * 32
PLACES = [TopicPartition("orders", partition) for partition in range(3)]
KEYS = [None, b"", b"a", b"b", b"c"]


def digest(key: bytes) -> bytes:
    return hmac.digest(SECRET, key, "sha256")


rows = st.tuples(st.integers(1, 4), st.sampled_from(PLACES), st.sampled_from(KEYS[1:]), st.integers(0, 9))
found_records = st.tuples(st.sampled_from(KEYS), st.integers(0, 9), st.sampled_from(PLACES))


@given(st.lists(rows), st.lists(found_records), st.booleans(), st.booleans())
def test_c30_it_agrees_with_one_record_at_a_time(
    asked: list[tuple[int, TopicPartition, bytes, int]],
    records: list[tuple[bytes | None, int, TopicPartition]],
    by_offset: bool,
    by_place: bool,
) -> None:
    requests = [
        Request(number, *place, below, digest(key), 0, 1, expire_history=False) for number, place, key, below in asked
    ]
    meant: Counter[int] = Counter()
    newer = set()
    for own, offset, where in records:
        for number, place, key, below in asked:
            if own == key and (not by_place or where == place):
                if not by_offset or offset < below:
                    meant[number] += 1
                else:
                    newer.add(digest(key))
    told = KeyMatcher(SECRET, requests).find(
        pa.array([key for key, _, _ in records], pa.large_binary()),
        np.array([offset for _, offset, _ in records], np.int64) if by_offset else None,
        [place for _, _, place in records] if by_place else None,
    )
    assert told.records == meant
    assert told.newer == newer


def test_c30_one_place_is_that_of_all_records() -> None:
    wanted = KeyMatcher(SECRET, [Request(1, "orders", 0, 5, digest(b"a"), 0, 1, expire_history=False)])
    keys, offsets = pa.array([b"a", b"a"], pa.large_binary()), np.array([1, 7])
    assert wanted.find(keys, offsets, [PLACES[0]]).records == {1: 1}
    assert wanted.find(keys, offsets, [PLACES[1]]).records == {}
    assert not wanted.holds(PLACES[1])
