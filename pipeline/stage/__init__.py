"""Stages: Iceberg tables that hold what a plan produced, where no reader of the target can see it yet."""

from pipeline.plan.failure import stages_of
from pipeline.stage.accounting import Books
from pipeline.stage.discard import discard
from pipeline.stage.mark import mark, retry
from pipeline.stage.open import open_stage
from pipeline.stage.split import parts_of, split
from pipeline.stage.stage import BURIED, INPUTS, QUARANTINED, REWRITTEN, Stage
from pipeline.stage.sweep import Swept, sweep

__all__ = [
    "BURIED",
    "INPUTS",
    "QUARANTINED",
    "REWRITTEN",
    "Books",
    "Stage",
    "Swept",
    "discard",
    "mark",
    "open_stage",
    "parts_of",
    "retry",
    "split",
    "stages_of",
    "sweep",
]
