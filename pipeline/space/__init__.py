"""The space that a table's history takes: bytes of files that only older snapshots, branches and tags reach.

It goes by snapshot summaries, which cost nothing, and reads manifests only for what these do not tell.
"""

from pipeline.space.history import HistorySpace, history_space

__all__ = ["HistorySpace", "history_space"]
