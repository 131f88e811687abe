"""Win the commit of one plan beside other writers: check on the newest snapshot, commit on top of it, or try again."""

from collections.abc import Callable

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_random,
)

from pipeline.errors import OutcomeUnknownError, UnavailableError
from pipeline.lake import Lake
from pipeline.plan import Plan
from pipeline.segments.commits import LEFT_OUT, NOW_MS
from pipeline.segments.manifests import Manifests
from pipeline.stage import Accounting
from pipeline.stage.accounting import SUMMARY_PREFIX
from pipeline.stage.published import PLAN_ID, published
from pipeline.stage.swap import Swap

RACE_SECONDS = 300
"""How long a commit goes on losing races against appenders before it gives up."""


def race(lake: Lake, plan: Plan, swap: Swap, check: Callable[[Table, Manifests], None]) -> tuple[int, int]:
    """Commit ``swap`` for ``plan`` once ``check`` passes on the very snapshot that it is committed on.

    Returns the snapshot that published the plan (another process's when that was faster) and how many tries it took.
    Raises what ``check`` raises; UnavailableError when races are lost for RACE_SECONDS; OutcomeUnknownError when the
    catalog did not say what became of the commit. Only a ConflictError proves that no try was applied.
    """
    manifests = Manifests(lake.table(plan.table).io)
    tries = Retrying(
        retry=retry_if_exception_type(CommitFailedException),
        # Short: appenders do not wait for us, so a longer pause only lets them add what the next try has to look at.
        wait=wait_random(0, 0.1),
        stop=stop_after_delay(RACE_SECONDS),
        retry_error_callback=_lost,
    )
    snapshot_id = tries(_attempt, lake, plan, swap, check, manifests)
    return snapshot_id, int(tries.statistics["attempt_number"])


def summary(plan: Plan, accounting: Accounting) -> dict[str, str]:
    """What the snapshot says of itself: the books (C24), and which plan it was."""
    return accounting.summary() | {
        PLAN_ID: plan.id,
        f"{SUMMARY_PREFIX}lane": plan.lane.value,
        f"{SUMMARY_PREFIX}topic-partition": str(plan.topic_partition),
        f"{SUMMARY_PREFIX}reason": plan.reason,
        NOW_MS: str(plan.now_ms),
        LEFT_OUT: str(plan.left_out),
    }


def _lost(state: RetryCallState) -> int:
    # No ConflictError: the plan is as good as before, and another process may be publishing it at this moment.
    raise UnavailableError(
        f"lost {state.attempt_number} races against other commits within {RACE_SECONDS} s; try again later"
    )


def _attempt(
    lake: Lake, plan: Plan, swap: Swap, check: Callable[[Table, Manifests], None], manifests: Manifests
) -> int:
    """Check and commit on the snapshot that is current now; returns the new snapshot's id."""
    target = lake.table(plan.table)
    before = published(target, plan.id)
    if before is not None:
        return before
    check(target, manifests)
    try:
        # A busy catalog is asked again. Had it applied the commit after all, the branch has moved and refuses another.
        lake.when_free(lambda: swap.commit(lake, target, manifests))
    except CommitFailedException:
        raise
    except Exception as error:
        # Anything else leaves it open whether the commit was applied: look before anybody retries or cleans up.
        found = _landed(lake, plan)
        if found is None:
            raise OutcomeUnknownError(
                f"table {plan.table}: the commit of plan {plan.id} ended without an answer ({error}); everything is "
                "kept, try again"
            ) from error
        return found
    return swap.snapshot_id


def _landed(lake: Lake, plan: Plan) -> int | None:
    """The snapshot by which the plan is known to be published; None also when the catalog does not answer."""
    try:
        return published(lake.table(plan.table), plan.id)
    except UnavailableError:
        return None
