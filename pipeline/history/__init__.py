"""History: Firn's entries in the snapshot summaries of a table, and facts about commits derived from them.

This is the only room that writes and reads summaries; every walk of a history follows main's ancestors (`ancestors`).
"""

from pipeline.history.ancestors import ancestors
from pipeline.history.clocks import CommitClock, commit_clocks, newest_clock
from pipeline.history.commit_summary import CommitSummary, appended, summary
from pipeline.history.file_bytes import FileBytes, cherry_picked, file_bytes
from pipeline.history.other_writers import others_since, others_since_firn
from pipeline.history.published_plans import PublishedPlan, plans_of, published, published_plans
from pipeline.history.record_counts import RecordCounts

__all__ = [
    "CommitClock",
    "CommitSummary",
    "FileBytes",
    "PublishedPlan",
    "RecordCounts",
    "ancestors",
    "appended",
    "cherry_picked",
    "commit_clocks",
    "file_bytes",
    "newest_clock",
    "others_since",
    "others_since_firn",
    "plans_of",
    "published",
    "published_plans",
    "summary",
]
