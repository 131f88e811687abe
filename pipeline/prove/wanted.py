"""Finds the records of requested keys among others, and tells which requests mean them (C30)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.erase.digests import digests_of
from pipeline.erase.requests import Request
from pipeline.lake.topic_partition import TopicPartition


@dataclass(frozen=True)
class Found:
    """Records of requested keys: those that are meant, by request id; and digests of keys that have newer records."""

    records: Counter[int] = field(default_factory=Counter)
    newer: frozenset[bytes] = frozenset()

    def __add__(self, other: "Found") -> "Found":
        return Found(self.records + other.records, self.newer | other.newer)


NOTHING: Final = Found()


class Wanted:
    """The keys that ``requests`` ask to erase. Pickled into tasks."""

    def __init__(self, secret: bytes, requests: Iterable[Request]) -> None:
        self._secret = secret
        self._rows: dict[bytes, list[tuple[TopicPartition, int, int]]] = {}
        self._places: set[TopicPartition] = set()
        for one in requests:
            place = one.topic_partition
            self._rows.setdefault(one.digest, []).append((place, one.below, one.id))
            self._places.add(place)

    @property
    def ids(self) -> frozenset[int]:
        """The ids of the requests."""
        return frozenset(number for rows in self._rows.values() for _, _, number in rows)

    def holds(self, place: TopicPartition) -> bool:
        """True when a request means records of ``place``."""
        return place in self._places

    def asked_by(self, digest: bytes | None) -> frozenset[int]:
        """The ids of the requests for the key with this ``digest``."""
        return frozenset(number for _, _, number in self._rows.get(digest or b"", ()))

    def digests_of(self, keys: pa.Array) -> list[bytes | None]:
        """The digests of ``keys`` (`key_bytes`)."""
        return digests_of(keys, self._secret)

    def find(
        self, keys: pa.Array, offsets: NDArray[np.int64] | None = None, places: Sequence[TopicPartition] | None = None
    ) -> Found:
        """Look for requested keys among ``keys`` (`key_bytes`).

        Without ``offsets`` every record of such a key is meant. ``places`` has the topic partition of every record, or
        of all of them if it is only one; without it, requests of all topic partitions count.
        """
        encoded = pc.dictionary_encode(keys)
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(len(encoded.dictionary)), side="right")
        meant: Counter[int] = Counter()
        newer = set()
        start = int((codes < 0).sum())
        for digest, end in zip(self.digests_of(encoded.dictionary), ends.tolist(), strict=True):
            own, start = order[start:end], end
            for place, below, number in self._rows.get(digest or b"", ()):
                there = own if places is None else _at(own, places, place)
                old = len(there) if offsets is None else int((offsets[there] < below).sum())
                if old:
                    meant[number] += old
                if old < len(there) and digest:
                    newer.add(digest)
        return Found(meant, frozenset(newer))


def _at(own: NDArray[np.intp], places: Sequence[TopicPartition], place: TopicPartition) -> NDArray[np.intp]:
    """The positions among ``own`` of records of topic partition ``place``."""
    if len(places) == 1:
        return own if places[0] == place else own[:0]
    return own[[places[position] == place for position in own.tolist()]]
