"""Judge what lane `retain` is about to drop, from metadata alone (C4, C19).

The lane drops whole segments, the newest records of keys included, so it reads no record, and neither does the judge.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress

from pyiceberg.table import Table

from firnlake.clock import show_ms
from firnlake.errors import ConflictError, FirnError, RefusedError, UnavailableError
from firnlake.iceberg.catalog import Lake
from firnlake.job.change import Change
from firnlake.job.failures import mark
from firnlake.job.reports import new_reports
from firnlake.table.policy import Policies, Policy
from firnlake.table.segment import Segment
from firnlake.validate.basis import Bases
from firnlake.validate.cases import claim_of
from firnlake.validate.change import JudgedChange
from firnlake_expectations.claim import Claim, Sample
from firnlake_expectations.findings import Findings
from firnlake_expectations.wording import count


def refused_drops(lake: Lake, target: Table, changes: Sequence[Change]) -> tuple[Mapping[str, FirnError], str]:
    """Judge ``changes`` of lane `retain`; by plan id, an error for each that must not be made, and the name of Great
    Expectations' run (empty if nothing was judged).

    A plan that breaks a promise is marked as failed; for conflicts, see ``Bases``. Validation results are stored
    below the table's metadata (``job.reports``).
    """
    from firnlake_expectations.checkpoint import UnjudgedError
    from firnlake_expectations.verdicts import verdicts

    errors: dict[str, FirnError] = {}
    bases, policies = Bases(), Policies.parse(".".join(target.name()), target.properties)
    claims: list[Claim] = []
    findings = []
    for own in changes:
        plan = own.plan
        basis = bases.of(target, plan)
        if isinstance(basis, ConflictError):
            errors[plan.id] = basis
            continue
        if problem := policies.of(plan.topic).problem:
            errors[plan.id] = ConflictError(f"plan {plan.id} ({plan.title}): {problem}; plan again")
            continue
        removed = basis.files(own.replaced)
        change = JudgedChange(own.published, basis, plan.now_ms, removed=removed, left=(), added=())
        claims.append(claim_of(change, own))
        findings.append(_findings(change, claims[-1], policies.of(plan.topic)))
    try:
        with new_reports(target) as reports:
            judged = verdicts(claims, findings, reports, job=claims[0].plan_id) if claims else {}
    except UnjudgedError as error:
        unjudged = UnavailableError(f"table {claims[0].table}: what lane retain drops can't be validated: {error}")
        return {one.plan.id: errors.get(one.plan.id, unjudged) for one in changes}, ""
    for plan in (one.plan for one in changes):
        if plan.id in judged and not judged[plan.id].passed:
            reason = judged[plan.id].reason
            errors[plan.id] = RefusedError(f"plan {plan.id} ({plan.title}) failed validation: {reason}")
            # If the mark can't be written, the next run makes the same plan, which fails again.
            with suppress(FirnError):
                mark(lake, plan, "validate", reason)
    return errors, next((one.validation for one in judged.values()), "")


def _findings(change: JudgedChange, claim: Claim, policy: Policy) -> Findings:
    """The findings about the segments that ``change`` drops, by the promises of lane `retain`."""
    held = [one for one in change.basis.own(change.plan.topic_partition) if one.records]
    dropped = [one for one in held if one.path in change.taken]
    staying = [one for one in held if one.path not in change.taken]
    end = max((one.last_offset for one in dropped), default=-1)
    others = [(one.base_offset, one.path) for one in staying]
    others += [(one.base_offset, one.path) for one in change.basis.segments.strays_of(change.plan.topic_partition)]
    ends = [one for one in dropped if one.last_offset >= claim.end]
    wrong = {
        "not_expired": tuple(_not_expired(held, change.taken, policy, change.now_ms)),
        "out_of_order": tuple(
            Sample(offset, None, f"{path} stays, from offset {offset}", f"only segments past offset {end}")
            for offset, path in others
            if offset <= end
        ),
        "log_end_dropped": tuple(
            Sample(one.last_offset, None, f"{one} is dropped", "the record at the log end stays") for one in ends
        ),
    }
    told, records = len(claim.figures), sum(one.records for one in dropped)
    figures = {"dropped": len(dropped), "staying": len(staying), "records_in": records, "told": told}
    broken = {rule: len(samples) for rule, samples in wrong.items()}
    return Findings(figures, broken, wrong, fingerprint=0, closely=False)


def _not_expired(held: Sequence[Segment], taken: Collection[str], policy: Policy, at_ms: int) -> Iterator[Sample]:
    """A sample for each dropped segment (its path is in ``taken``) that neither its age nor the size of the later
    segments allows to drop."""
    left = sum(one.bytes for one in held)
    for one in held:
        left -= one.bytes
        since = _since_ms(one)
        is_old = since is not None and 0 <= policy.retention_ms < at_ms - since
        is_beyond = 0 <= policy.retention_bytes <= left
        if one.path in taken and not (policy.deletes and (is_old or is_beyond)):
            age = "of unknown age" if since is None else f"from {show_ms(since)}"
            allowed = f"cleanup.policy delete, and older than retention.ms {policy.retention_ms} at {show_ms(at_ms)}"
            without = f"the topic partition would have {count(left, 'byte')} without it"
            yield Sample(one.base_offset, None, f"{one} is {age}, {without}", allowed)


def _since_ms(segment: Segment) -> int | None:
    """The time from which a segment's age counts; None if it is unknown. Records without a timestamp count from their
    landing (C19)."""
    if segment.oldest_ms >= 0:
        return segment.newest_ms
    landed = [one for one in (segment.committed_ms, segment.written_ms) if one is not None]
    return max(segment.newest_ms, *landed) if landed else None
