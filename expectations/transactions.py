"""The judge's rule for transactions: which records are aborted or undecided, and which markers may go (C10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from expectations.claim import BURIED

if TYPE_CHECKING:
    from expectations.tables import Layout

_COMMIT, _ABORT = "0001", "0000"
"""Types of control records: bytes 3 and 4 of the key (Kafka's ControlRecordType)."""


def transactions(layout: Layout) -> list[str]:
    """`marks`: records that were aborted, are undecided, or are markers whose transaction has no records left (C10).

    Derived from the contract alone: a producer's records up to and including its next marker are one transaction. Each
    is numbered by the markers before it and judged as a whole.
    """
    if not layout.transactions:
        return ['CREATE TABLE marks (plan INTEGER, "offset" BIGINT, aborted BOOLEAN, undecided BOOLEAN, ended BOOLEAN)']
    return [
        # A cleaning keeps committed records only, so levels 2 and 3 need no second judgement.
        f"""CREATE VIEW events AS
        SELECT plan, producer, "offset", commit, data, bool_and(open) AS open FROM (
            SELECT plan, producer, "offset",
                CASE WHEN control THEN CASE hex(key[3:4]) WHEN '{_COMMIT}' THEN true WHEN '{_ABORT}' THEN false END END
                    AS commit,
                NOT control AS data, NOT control AND level < 2 AS open
            FROM before JOIN plans USING (plan) WHERE told AND level != {BURIED} AND (control OR transactional)
            UNION ALL SELECT plan, producer, "offset", commit, false, false FROM markers
        ) GROUP BY plan, producer, "offset", commit, data""",
        """CREATE TABLE marks AS
        SELECT plan, "offset", bool_or(open AND coalesce(NOT ending, false)) AS aborted,
            bool_or(open AND ending IS NULL) AS undecided, bool_or(commit IS NOT NULL AND NOT any_data) AS ended
        FROM (
            SELECT *, bool_or(commit) OVER whole AS ending, bool_or(data) OVER whole AS any_data
            FROM (SELECT *, count(commit) OVER (PARTITION BY plan, producer ORDER BY "offset"
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS number FROM events)
            WINDOW whole AS (PARTITION BY plan, producer, number)
        ) GROUP BY plan, "offset" HAVING aborted OR undecided OR ended""",
    ]
