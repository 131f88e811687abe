"""The modules that flips are drawn from: what decides over records, commits and files, and what judges that."""

from typing import Final

RULES: Final = {
    "outcome of records": ("pipeline/compact/outcome.py", "pipeline/publish/preconditions.py"),
    "commit": ("pipeline/lake/snapshot_commit.py", "pipeline/publish/optimistic_commit.py"),
    "care": (
        "pipeline/care/expire.py",
        "pipeline/care/jobs.py",
        "pipeline/care/limits.py",
        "pipeline/care/lost_refs.py",
        "pipeline/care/named_once.py",
        "pipeline/care/orphans.py",
        "pipeline/care/places.py",
        "pipeline/care/references.py",
        "pipeline/care/shared.py",
        "pipeline/care/side_branches.py",
        "pipeline/care/stale.py",
        "pipeline/care/unnamed.py",
        "pipeline/care/unreached.py",
        "pipeline/care/whole.py",
        "pipeline/history/retained.py",
    ),
    "promises": (
        "expectations/promises/erasure.py",
        "expectations/promises/every_lane.py",
        "expectations/promises/fate.py",
        "expectations/promises/hiding.py",
        "expectations/promises/masking.py",
        "expectations/promises/promise.py",
        "expectations/promises/record_counts.py",
        "expectations/promises/records.py",
        "expectations/promises/tombstones.py",
        "expectations/promises/transactions.py",
    ),
    "views of the judge": ("expectations/views.py",),
}
"""Paths of modules, by what they decide."""
SHARES: Final = {"outcome of records": 45, "commit": 35, "care": 60, "promises": 30, "views of the judge": 30}
"""Numbers of flips."""
MODULES: Final = tuple(module for modules in RULES.values() for module in modules)
TESTED_BY: Final = ("tests/unit", "tests/lanes", "tests/findings")
"""Folders of the tests that flips are held against: hardly any of them starts a JVM, and none starts Airflow."""
