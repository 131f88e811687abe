"""Processes of their own, forked by a server that has imported everything: ten that import it all take minutes."""

import multiprocessing
from multiprocessing.context import ForkServerContext

PRELOADED = (
    "duckdb",
    "firnlake_expectations.suites",
    "firnlake.compact.compact",
    "firnlake.publish.publish",
    "firnlake.validate.validate",
)


def forked() -> ForkServerContext:
    """The context whose processes share nothing with this one, as spawned ones do."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(list(PRELOADED))
    return found
