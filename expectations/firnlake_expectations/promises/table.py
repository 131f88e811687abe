"""The table of promises: an entry for each promise, with its number in the contract, its sentence and its SQL rules.

To add a promise, add an entry here and a test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firnlake_expectations.promises.every_lane import (
    COPIES_LEVEL,
    FIGURES_TOLD,
    ONE_TOPIC_PARTITION,
    OUTPUT_LEVEL,
    RECORD_COUNTS,
    SAME_RECORDS,
    WHOLE_FILES,
)
from firnlake_expectations.promises.lanes import (
    LEVELS_KEPT,
    LOG_END_NOT_ERASED,
    LOG_END_RETAINED,
    OLDEST_DROPPED,
    ONLY_EXPIRED_DROPPED,
    OTHER_RECORDS_UNCHANGED,
    REQUESTED_RECORDS_GONE,
    SAME_VISIBLE_RECORDS,
)
from firnlake_expectations.promises.promise import Promise
from firnlake_expectations.promises.records import (
    DISTINCT_OFFSETS,
    LOG_END_KEPT,
    NEWEST_RECORD_KEPT,
    NO_NULL_KEYS,
    ONE_RECORD_PER_KEY,
    RECORDS_UNCHANGED,
)
from firnlake_expectations.promises.tombstones import (
    ABORTED_RECORDS_GONE,
    DELETE_HORIZONS,
    GONE_TOMBSTONES,
    KEPT_TOMBSTONES,
    MARKERS_KEPT,
)

if TYPE_CHECKING:
    from firnlake_expectations.claim import Claim, Sample
    from firnlake_expectations.promises.promise import Figures, Rule


PROMISES = (
    ONLY_EXPIRED_DROPPED,
    OLDEST_DROPPED,
    LOG_END_RETAINED,
    REQUESTED_RECORDS_GONE,
    OTHER_RECORDS_UNCHANGED,
    LEVELS_KEPT,
    LOG_END_NOT_ERASED,
    SAME_VISIBLE_RECORDS,
    SAME_RECORDS,
    ONE_RECORD_PER_KEY,
    NEWEST_RECORD_KEPT,
    KEPT_TOMBSTONES,
    GONE_TOMBSTONES,
    DELETE_HORIZONS,
    LOG_END_KEPT,
    RECORDS_UNCHANGED,
    NO_NULL_KEYS,
    ABORTED_RECORDS_GONE,
    MARKERS_KEPT,
    OUTPUT_LEVEL,
    COPIES_LEVEL,
    DISTINCT_OFFSETS,
    ONE_TOPIC_PARTITION,
    WHOLE_FILES,
    RECORD_COUNTS,
    FIGURES_TOLD,
)
"""All promises, in the order of the reports."""


def _found_elsewhere(_: Figures, __: Claim) -> tuple[Sample, ...]:
    """No sample: Great Expectations has run the suites, and their findings have samples of their own."""
    return ()


OWN_SUITES = Promise(
    number="C23",
    name="expect_own_suites_met",
    lanes=(),
    sentence="The records that were written meet the suites of the table's owner.",
    checked="own_expectations",
    noun="expectation",
    differences=_found_elsewhere,
)
"""What the suites of the table's owner say of a plan; the judge has no rule for it."""

FINGERPRINT = "fingerprint"
"""Rule that is broken when the records written differ from the records read, by the fingerprint taken while reading."""


def promises_of(claim: Claim) -> tuple[Promise, ...]:
    """The promises about the plan of `claim`."""
    return tuple(promise for promise in PROMISES if promise.made_for(claim))


def promises_for(lane: str) -> tuple[Promise, ...]:
    """The promises about `lane`; some of them are made only for some of its plans (see `promises_of`)."""
    return tuple(promise for promise in PROMISES if lane in promise.lanes)


def rules_of(claim: Claim) -> tuple[Rule, ...]:
    """The rules that the plan of `claim` can break, each once."""
    return tuple({rule.name: rule for promise in promises_of(claim) for rule in promise.rules}.values())
