"""History: Firn's entries in the snapshot summaries of a table, and facts about commits derived from them.

This is the only room that writes and reads summaries; every walk of a history follows main's ancestors (`ancestors`).
"""

from pipeline.history.ancestors import ancestors
from pipeline.history.clocks import CommitClock, commit_clocks, newest_clock
from pipeline.history.commit_summary import CommitSummary, appended, summary
from pipeline.history.published_plans import PublishedPlan, plans_of, published, published_plans
from pipeline.history.record_counts import RecordCounts

__all__ = [
    "CommitClock",
    "CommitSummary",
    "PublishedPlan",
    "RecordCounts",
    "ancestors",
    "appended",
    "commit_clocks",
    "newest_clock",
    "plans_of",
    "published",
    "published_plans",
    "summary",
]
