"""Cleaning progress of topic partitions in the format of Kafka's ``cleaner-offset-checkpoint`` (C16).

Kafka's CheckpointFile has a line for the version, a line for the number of entries, and a line per entry. Kafka's
OffsetCheckpointFile has version 0, and entries ``topic partition offset``, where the offset is the first dirty offset.
As in Kafka, a topic partition has an entry once it has been cleaned; in Firn, a cleaned topic partition has a tail.
"""

import re
from typing import Final

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.plan.read_states import read_once

VERSION: Final = 0
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def checkpoint_text(lake: Lake, identifier: str) -> tuple[str, list[RefusedError]]:
    """The checkpoint of table ``identifier`` at its current snapshot, sorted by topic and partition.

    An entry of a topic whose name Kafka does not allow could not be read back, so it is left out, with an error.
    """
    sensed = read_once(lake, identifier, now_ms=0, look_at_transactions=False)
    cleaned = (state for state in sensed.states() if state.cleaned_through is not None)
    entries, odd = [], []
    for state in sorted(cleaned, key=lambda state: state.topic_partition):
        topic, partition = state.topic_partition
        if not _LEGAL.fullmatch(topic):
            why = f"topic {topic!r} (partition {partition}) can't be written to a checkpoint"
            odd.append(RefusedError(f"table {identifier}: {why}; allowed: letters, digits, '.', '_' and '-'"))
        else:
            entries.append(f"{topic} {partition} {state.first_dirty_offset}")
    return "".join(f"{line}\n" for line in (VERSION, len(entries), *entries)), odd
