"""Records of the demo's producer: shopping carts. The key is a customer, the value is the cart as it is now.

A few customers are busy and most are not (Zipf's law), so most records supersede another one soon. A cart that was
checked out is a tombstone. The same seed and log ends give the same records.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from zlib import crc32

import numpy as np

from infra.demo.segments import CREATE_TIME, Record

TOPIC = "carts"
PARTITIONS = 4
CUSTOMERS = 2000
ZIPF_EXPONENT = 1.0
CHECKED_OUT = 0.05
"""The share of records that are tombstones."""
RECORDS = 40
"""Per commit."""
SPACING = timedelta(milliseconds=100)
MOST_ITEMS = 6
GOODS = ("crampons", "ice axe", "rope 60 m", "snow shovel", "probe 240 cm", "transceiver", "gaiters", "headlamp")

_RANKS = np.arange(1, CUSTOMERS + 1) ** -ZIPF_EXPONENT
_POPULARITY = _RANKS / _RANKS.sum()


def records(seed: int, log_ends: Mapping[int, int], now: datetime) -> list[Record]:
    """The records of one commit at ``now``, each at the log end of its partition; ``log_ends`` stays as it is.

    Partitions follow the key's CRC-32, as librdkafka does.
    """
    ends = dict(log_ends)
    random = np.random.default_rng([seed, sum(ends.values())])
    made = []
    for number, rank in enumerate(random.choice(CUSTOMERS, RECORDS, p=_POPULARITY).tolist()):
        key = f"customer-{rank:04}".encode()
        partition = crc32(key) % PARTITIONS
        offset = ends.get(partition, 0)
        ends[partition] = offset + 1
        at = now - SPACING * (RECORDS - 1 - number)
        value = None if random.random() < CHECKED_OUT else cart(random, at)
        made.append(Record(key, value, TOPIC, partition, offset, at.astimezone(UTC), CREATE_TIME, []))
    return made


def cart(random: np.random.Generator, at: datetime) -> bytes:
    """A cart with some items in it, as compact JSON of 90 to 350 bytes."""
    items = [
        {
            "article": str(random.choice(GOODS)),
            "pieces": int(random.integers(1, 4)),
            "cents": int(random.integers(500, 50_000)),
        }
        for _ in range(random.integers(1, MOST_ITEMS + 1))
    ]
    return json.dumps({"updated": at.isoformat(), "items": items}, separators=(",", ":")).encode()
