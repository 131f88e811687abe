"""Workloads written by hand after cases of Kafka's own cleaner tests, in a few words each.

``a=1`` is a record, ``a=`` a tombstone; ``7:a=1`` was written by transactional producer 7, ``7+`` is its commit marker
and ``7-`` its abort marker. A string is a segment; a case is the segments of its steps.
"""

from collections.abc import Mapping, Sequence

from tests.conformance.workloads import (
    DAY,
    HOUR,
    MARKER_VALUE,
    MARKERS,
    ROOMY_BUFFER,
    START,
    Entry,
    Group,
    Mode,
    Step,
    Workload,
)

STEPS = 5
_KEYS = {"COMMIT": MARKERS["COMMIT"], "LARGE": bytes(1 << 20)}
"""Keys that can't be typed."""


def group(name: str, cases: Mapping[str, Sequence[Sequence[str]]]) -> Group:
    """The cases as one group: five cleanings, each later by ``delete.retention.ms``, none without something new."""
    workloads = tuple(_workload(case, steps) for case, steps in cases.items())
    return Group(name, Mode.TRANSACTIONS, workloads, settling=0)


def _workload(name: str, given: Sequence[Sequence[str]]) -> Workload:
    steps: list[Step] = []
    offset = 0
    for number in range(STEPS):
        now = START + number * DAY
        segments = []
        for text in given[number] if number < len(given) else [f"end{number}=1"]:
            words = text.split()
            segments.append(tuple(_entry(offset + n, now - HOUR, word) for n, word in enumerate(words)))
            offset += len(words)
        steps.append(Step(now, tuple(segments)))
    configs = {"min.cleanable.dirty.ratio": "0.0", "delete.retention.ms": str(DAY)}
    return Workload(name, configs, ROOMY_BUFFER, active=False, steps=tuple(steps))


def _entry(offset: int, timestamp: int, word: str) -> Entry:
    if word[-1] in "+-":
        marker = {"+": "COMMIT", "-": "ABORT"}[word[-1]]
        return Entry(offset, timestamp, MARKERS[marker], MARKER_VALUE, int(word[:-1]), marker)
    writer, _, record = word.rpartition(":")
    key, _, value = record.partition("=")
    producer = int(writer) if writer else None
    return Entry(offset, timestamp, _KEYS.get(key, key.encode()), value.encode() or None, producer)
