"""Keep landing shopping carts, a commit every few seconds, as a connector does: `make up` runs it beside Airflow.

    python -m infra.demo.producer [SEED]

The key is a customer, the value is the cart as it is now. A few customers are busy and most are not (Zipf's law), so
most records supersede another one soon. A cart that was checked out is a tombstone. The same seed and log ends give the
same records.

It may run for ever. What bounds it: the customers bound what compaction leaves; while nobody compacts it stops at
MOST_SEGMENTS live segments; snapshots stay for a quarter of an hour, and so do the files that only they reach.
"""

import json
import logging
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zlib import crc32

import numpy as np

from firnlake.airflow.configuration import dag_id_of
from firnlake.errors import FirnError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import Kind
from firnlake.ingest.land import land
from firnlake.maintain.maintain import maintain_table
from firnlake.table import manifest_reader
from firnlake.table import records as table_of_records
from infra.demo.changelog import Record, write

TABLE = "shop.carts"
DAG_ID = dag_id_of(TABLE)
"""The DAG that tables.toml beside this file makes for TABLE."""
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

SECONDS = 5.0
"""Between two commits."""
SEED = 1
MOST_SEGMENTS = 4000
EXPIRED_EVERY = timedelta(minutes=5)

PROPERTIES = {
    # With a segment per topic partition and commit something is due every two minutes: mostly a merge, at times more.
    "firn.merge.segments": "24",
    "firn.clean.segments": "4",
    "firn.delete.retention.ms": "600000",
    # Every commit writes a metadata file.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    "history.expire.max-snapshot-age-ms": "900000",
}

_RANKS = np.arange(1, CUSTOMERS + 1) ** -ZIPF_EXPONENT
_POPULARITY = _RANKS / _RANKS.sum()

log = logging.getLogger("producer")


def create(lake: Lake) -> None:
    """Create TABLE unless it is there."""
    if TABLE not in lake.all_tables():
        table_of_records.create(lake, TABLE, PROPERTIES)


def produce(lake: Lake, moments: Iterable[datetime], seed: int = SEED) -> None:
    """Land a commit into TABLE at each of the ``moments``, which are the clock.

    What goes wrong with a commit is logged and left to the next one, which looks first what has become of it.
    """
    expire_at: datetime | None = None
    for now in moments:
        try:
            commit(lake, seed, now)
            expire_at = expire_at or now + EXPIRED_EVERY
            if now >= expire_at:
                now_ms = int(now.timestamp() * 1000)
                for one in maintain_table(lake, TABLE, now_ms, remove=True, parts={Kind.SNAPSHOTS}):
                    log.info("%s", one)
                expire_at = now + EXPIRED_EVERY
        except FirnError as error:
            log.warning("%s", error)


def commit(lake: Lake, seed: int, now: datetime) -> None:
    """Land one commit, unless there are too many segments already."""
    segments = manifest_reader.read(lake.table(TABLE), TABLE)
    live = len(list(segments.each()))
    if live > MOST_SEGMENTS:
        log.warning("%s segments wait for %s: nothing is landed until it has run", live, DAG_ID)
        return
    # Cleaning leaves the last record where it is (C4).
    log_ends = {
        of.partition: max(segment.last_offset for segment in own) + 1
        for of, own in segments.items()
        if of.topic == TOPIC
    }
    with tempfile.TemporaryDirectory() as folder:
        landed = land(lake, TABLE, [write(records(seed, log_ends, now), Path(folder) / "carts.parquet")])
    log.info("%s records in %s segments, %s bytes", landed.records, landed.segments, landed.bytes)


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
        made.append(Record(key, value, TOPIC, partition, offset, at.astimezone(UTC)))
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


def every(seconds: float) -> Iterator[datetime]:
    """The time now, again after so many seconds, for ever."""
    while True:
        yield datetime.now(UTC)
        time.sleep(seconds)


def main() -> None:
    """Entry point."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    produce(Lake.load(), every(SECONDS), int(sys.argv[1]) if len(sys.argv) > 1 else SEED)


if __name__ == "__main__":
    main()
