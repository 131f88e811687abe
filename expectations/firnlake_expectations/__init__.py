"""Proof for compacted Kafka logs: promises, as SQL, that check the output of compaction against Kafka's contract.

Usable without the rest of Firn: ``judge`` finds the records of any source that break a promise; ``verdicts`` has
Great Expectations check its verdicts and stores them.
"""

import logging

# From its import on, Great Expectations logs hundreds of lines, which would hide those of a task.
logging.getLogger("great_expectations").setLevel(logging.WARNING)
