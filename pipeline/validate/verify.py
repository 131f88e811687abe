"""Submit a commit in a table's history to the same judge, as an outsider would: values are read on both sides."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.engine import Engine
from pipeline.lake import Lake
from pipeline.policy import samples_of
from pipeline.validate.commit import VerifiedCommit, ended_at, published_commit
from pipeline.validate.tasks import findings_of

if TYPE_CHECKING:
    from expectations.claim import Claim
    from expectations.findings import Row
    from pipeline.validate.cases import Case


@dataclass(frozen=True)
class Verified:
    """The verdict on one plan of a commit: its claim, and a line for each promise."""

    snapshot_id: int
    claim: "Claim"
    rows: "tuple[Row, ...]"

    @property
    def passed(self) -> bool:
        """True when every promise was kept."""
        return not any(row.broken for row in self.rows)


def verify(lake: Lake, identifier: str, snapshot_id: int | None, engine: Engine) -> list[Verified]:
    """``judge`` the commit that made ``snapshot_id``, by default Firn's newest one with a result.

    Raises RefusedError when there is no such commit, or it can no longer be judged.
    """
    return judge(lake, identifier, published_commit(lake, identifier, snapshot_id), engine)


def judge(lake: Lake, identifier: str, commit: VerifiedCommit, engine: Engine) -> list[Verified]:
    """Judge the plans of ``commit`` of table ``identifier``."""
    from expectations.findings import rows

    samples = samples_of(lake.table(identifier).properties)
    verified = []
    for case in commit.cases:
        tried: list[tuple[Case, tuple[Row, ...]]] = []
        # The log end at planning time: that of the snapshot before, or the last offset that the plan read.
        for end, kept_from in commit.ends[case.claim.plan_id]:
            own = ended_at(case, end, kept_from)
            tried.append((own, rows(own.claim, findings_of(commit.records, [own], samples, engine)[0])))
            if not any(row.broken for row in tried[-1][1]):
                break
        told, lines = tried[-1] if not any(row.broken for row in tried[-1][1]) else tried[0]
        verified.append(Verified(commit.snapshot_id, told.claim, lines))
    return verified
