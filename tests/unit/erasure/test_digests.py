"""C30: digests of keys hold under promotion, and tell exactly which records are meant (C6)."""

import hashlib
import hmac
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from firnlake.lanes.erasure.requests import Matcher, Request, digests_of, key_bytes

SECRET = b"s" * 32


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def request(key: bytes, below: int, number: int = 1) -> Request:
    digest = hmac.digest(SECRET, key, "sha256")
    return Request(number, "orders", 0, below, digest, 0, 1, expire_history=False)


def binary(*keys: bytes | None) -> pa.Array:
    return pa.array(keys, pa.large_binary())


def test_a_digest_is_hmac_sha256_of_the_key_bytes() -> None:
    first, none, empty = digests_of(binary(b"alice", None, b""), SECRET)
    assert first == hmac.new(SECRET, b"alice", hashlib.sha256).digest()
    assert none is None
    assert empty == hmac.new(SECRET, b"", hashlib.sha256).digest(), "an empty key is a key (C6)"


def test_another_secret_gives_another_digest() -> None:
    assert digests_of(binary(b"alice"), SECRET) != digests_of(binary(b"alice"), b"t" * 32)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (7, pa.int64()),
        (True, pa.bool_()),
        ("müller", pa.large_string()),
        (Decimal("1.50"), pa.decimal128(9, 2)),
        (bytes(16), pa.binary(16)),
        (1, pa.date32()),
        (1, pa.timestamp("us", "UTC")),
    ],
)
def test_every_type_of_key_has_bytes_of_its_own(value: Any, kind: pa.DataType) -> None:
    one, none = key_bytes(batch(k=pa.array([value, None], kind)), ["k"])
    assert (one.is_valid, none.is_valid) == (True, False)


def test_a_promoted_column_keeps_its_digests() -> None:
    short, long = (pa.array([7, -1], kind) for kind in (pa.int32(), pa.int64()))
    assert key_bytes(batch(k=short), ["k"]).equals(key_bytes(batch(k=long), ["k"]))
    assert key_bytes(batch(a=short, b=short), ["a", "b"]).equals(key_bytes(batch(a=long, b=long), ["a", "b"]))
    narrow, wide = (pa.array([Decimal("1.50")], pa.decimal128(digits, 2)) for digits in (9, 20))
    assert key_bytes(batch(k=narrow), ["k"]).equals(key_bytes(batch(k=wide), ["k"]))


def test_composite_keys_do_not_run_together() -> None:
    first = key_bytes(batch(a=pa.array(["ab"], pa.large_string()), b=pa.array(["c"], pa.large_string())), ["a", "b"])
    second = key_bytes(batch(a=pa.array(["a"], pa.large_string()), b=pa.array(["bc"], pa.large_string())), ["a", "b"])
    assert not first.equals(second)


def test_a_sliced_batch_has_the_same_bytes() -> None:
    whole = batch(k=pa.array([1, 2, None, 4], pa.int64()))
    assert key_bytes(whole.slice(1, 3), ["k"]).to_pylist() == key_bytes(whole, ["k"]).to_pylist()[1:]


class TestMatcher:
    def test_c30_lower_offsets_of_the_key_are_meant_and_no_others(self) -> None:
        matcher = Matcher(SECRET, [request(b"a", 3)])
        keys = binary(b"a", b"b", b"a", b"a", None)
        found = matcher.matches(keys, np.array([0, 1, 2, 3, 0]))
        assert found.tolist() == [True, False, True, False, False]

    def test_c30_the_furthest_request_of_a_key_counts(self) -> None:
        matcher = Matcher(SECRET, [request(b"a", 9, 2), request(b"a", 3), request(b"b", 1)])
        assert matcher.below == 9
        assert matcher.matches(binary(b"a", b"b"), np.array([8, 8])).tolist() == [True, False]

    def test_nothing_is_meant_without_requests(self) -> None:
        assert not Matcher(SECRET, []).matches(binary(b"a"), np.array([0])).any()

    def test_keys_may_all_be_missing(self) -> None:
        assert not Matcher(SECRET, [request(b"a", 3)]).matches(binary(None, None), np.array([0, 1])).any()

    def test_it_agrees_with_one_record_at_a_time(self) -> None:
        numbers = np.random.default_rng(0)
        keys = [None if number == 0 else b"%d" % number for number in numbers.integers(0, 20, 500)]
        offsets = numbers.integers(0, 100, 500)
        requests = [request(b"%d" % key, int(below)) for key, below in enumerate(numbers.integers(0, 100, 10))]
        wanted = {one.digest: one.below for one in requests}
        said = Matcher(SECRET, requests).matches(binary(*keys), offsets)
        for key, offset, meant in zip(keys, offsets, said, strict=True):
            digest = None if key is None else hmac.digest(SECRET, key, "sha256")
            assert meant == (digest in wanted and offset < wanted[digest])
