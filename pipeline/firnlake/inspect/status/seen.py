"""What the data-quality pages need of a table besides its verdicts: its status, its retention and its mendings."""

import logging
from dataclasses import replace
from itertools import islice
from typing import Final

from pyiceberg.table import Table

from firnlake.clock import exact_span
from firnlake.errors import FirnError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.manifests import DAMAGED
from firnlake.inspect.status.rows import Status
from firnlake.maintain.mend import mended
from firnlake.table.policy import Policies, Policy
from firnlake_expectations.table_report import MendedFile, Seen
from firnlake_expectations.wording import plain

MENDED_SHOWN: Final = 100
"""Maximum number of mended files that pages list, newest first; ``firn mend --list`` lists all."""

log = logging.getLogger(__name__)


def seen_of(lake: Lake, status: Status) -> Seen:
    """What the pages need of the table of ``status``. Raises RefusedError for an unknown table or a wrong property."""
    table = lake.table(status.table)
    policies = Policies.parse(status.table, table.properties)
    topics: list[str] = status.rows["topic"].unique().to_pylist()
    own = {topic: policies.of(topic) for topic in topics}
    retained = {plain(topic): _limits(one) for topic, one in own.items() if not one.compacts}
    return replace(status.seen(), retained=retained, mended=_mended(lake, table, status.table))


def _limits(policy: Policy) -> str:
    age, size = policy.retention_ms, policy.retention_bytes
    told = [f"retention.ms = {exact_span(age)}"] if age >= 0 else []
    return ", ".join([*told, f"retention.bytes = {size}"] if size >= 0 else told)


def _mended(lake: Lake, table: Table, identifier: str) -> tuple[MendedFile, ...]:
    """The files that the newest mendings took; none if a manifest of a snapshot before a mending is gone or damaged."""
    try:
        with lake.answering():
            return tuple(islice(mended(table, identifier), MENDED_SHOWN))
    except (FirnError, *DAMAGED) as error:
        log.warning("table %s: its report lists no mendings: %s", identifier, error)
        return ()
