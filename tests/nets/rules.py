"""The modules that flips are drawn from: what decides over records, commits and files, and what judges that."""

from typing import Final

RULES: Final = {
    "outcome of records": ("pipeline/firnlake/compact/keep_or_drop.py", "pipeline/firnlake/publish/conflicts.py"),
    "commit": ("pipeline/firnlake/iceberg/commit.py", "pipeline/firnlake/publish/attempts.py"),
    "maintenance": (
        "pipeline/firnlake/maintain/expire.py",
        "pipeline/firnlake/job/collect.py",
        "pipeline/firnlake/maintain/reports.py",
        "pipeline/firnlake/maintain/unreached.py",
        "pipeline/firnlake/maintain/orphans.py",
        "pipeline/firnlake/table/references.py",
        "pipeline/firnlake/maintain/listing.py",
        "pipeline/firnlake/maintain/side_branches.py",
        "pipeline/firnlake/job/stale.py",
        "pipeline/firnlake/iceberg/snapshots.py",
    ),
    "promises": (
        "expectations/firnlake_expectations/promises/lanes.py",
        "expectations/firnlake_expectations/promises/every_lane.py",
        "expectations/firnlake_expectations/promises/promise.py",
        "expectations/firnlake_expectations/promises/records.py",
        "expectations/firnlake_expectations/promises/tombstones.py",
    ),
    "views of the judge": ("expectations/firnlake_expectations/views.py",),
}
"""Paths of modules, by what they decide."""
SHARES: Final = {"outcome of records": 45, "commit": 35, "maintenance": 60, "promises": 30, "views of the judge": 30}
"""Numbers of flips."""
LATER: Final = {
    "table": 35,
    "lanes": 30,
    "plan": 20,
    "validate": 15,
    "inspect": 25,
    "ingest": 25,
}
"""Numbers of flips that were drawn later (from 201 on), by folder of the package."""
MODULES: Final = tuple(module for modules in RULES.values() for module in modules)
TESTED_BY: Final = ("tests/unit", "tests/contract", "tests/judge")
"""Folders of the tests that flips are held against: hardly any of them starts a JVM, and none starts Airflow."""
