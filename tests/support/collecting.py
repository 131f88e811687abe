"""Stages that a collector takes, and what is left of them."""

from firnlake.iceberg.catalog import Lake
from firnlake.ingest.quarantine import records as quarantined
from firnlake.job.stage import Stage
from firnlake.table.published_plans import published
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.lakes import TABLE

YEAR_MS = 366 * 86_400_000


def in_quarantine(lake: Lake) -> list[int]:
    return [one.offset for one in quarantined(lake, TABLE, 10)]


def agree(lake: Lake) -> None:
    """Every file that a snapshot refers to is there: catalog and files tell the same."""
    gone = {path for path in lakes.held(lake.table(TABLE)) if not on_disk(path).exists()}
    assert gone == set()


def whole(lake: Lake, stage: Stage) -> bool:
    """True when the stage is published; readers see all of it or nothing of it."""
    done = published(lake.table(TABLE), stage.job_id) is not None
    assert (lakes.offsets(lake), in_quarantine(lake)) == (([1], [0]) if done else ([0, 1], []))
    agree(lake)
    return done
