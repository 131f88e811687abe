"""Profiles: alternative defaults with which Firn cleans a topic when Kafka or WarpStream would clean it.

An explicit property takes precedence. A profile decides when and how much is cleaned, never which record survives.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

MIB = 1 << 20
INT_MAX: Final = 2**31 - 1
"""Java's largest int; as a number of segments, it means never."""

BYTES_PER_KEY: Final[Mapping[str, int]] = MappingProxyType({"firn": 24, "kafka": 24, "warpstream": 41})
"""Bytes per key in the map of newest offsets. Kafka's SkimpyOffsetMap takes 16 bytes of hash and 8 bytes of offset;
WarpStream takes 32 bytes of hash, two integers of 4 bytes, and one byte."""

SEEDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "merge.segments": "WarpStream",
        "clean.segments": "WarpStream",
        "tier.runs": "WarpStream",
        "min.cleanable.dirty.ratio": "Kafka",
        "min.dirty.bytes": "Firn",
        "full.interval.ms": "WarpStream",
        "max.input.bytes": "WarpStream",
    }
)
"""The systems from which Firn's default thresholds come, by property name without prefix."""

LOAD_FACTOR: Final[Mapping[str, float]] = MappingProxyType({"firn": 0.9, "kafka": 0.9, "warpstream": 1.0})
"""The fraction of the buffer that a plan may fill; 0.9 is the default of Kafka's log.cleaner.io.buffer.load.factor."""

OF_ADOPTED: Final[Mapping[str, str]] = MappingProxyType({"maintenance": "none", "offsets.restart": "late"})
"""Defaults of an adopted table: other tools may maintain it, and only its owner knows if its order is a broker's."""

PROFILES: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        # The triggers of WarpStream (32, 32, 10 files and a day) and Kafka's dirty ratio, which are Firn's defaults.
        "firn": {},
        # Kafka has a single lane, with two of Firn's triggers: dirty ratio and maximum lag.
        "kafka": {
            "merge.segments": str(INT_MAX),
            "clean.segments": str(INT_MAX),
            "tier.runs": str(INT_MAX),
            "min.dirty.bytes": "0",
            "full.interval.ms": "-1",
            "tombstone.fraction": "1",
            "cleaner.dedupe.buffer.size": str(128 * MIB),
        },
        # WarpStream has Firn's default triggers: merge 32 files, clean 32 files, tier 10 files, full clean every day.
        "warpstream": {
            "min.cleanable.dirty.ratio": "1",
            # WarpStream has such a buffer per topic partition of a job.
            "cleaner.dedupe.buffer.size": str(128 * MIB),
        },
    }
)


def with_defaults(values: Mapping[str, str]) -> dict[str, str]:
    """``values`` (names without prefix) on top of their profile's defaults.

    An unknown profile has no defaults; the caller refuses it.
    """
    return {**PROFILES.get(values.get("profile", "firn"), {}), **values}
