"""Stages: Iceberg tables that hold what a plan produced, where no reader of the target can see it yet."""

from pipeline.stage.accounting import Accounting
from pipeline.stage.discard import Swept, discard, sweep
from pipeline.stage.open import open_stage
from pipeline.stage.stage import BURIED, INPUTS, QUARANTINED, Stage, stages_of

__all__ = [
    "BURIED",
    "INPUTS",
    "QUARANTINED",
    "Accounting",
    "Stage",
    "Swept",
    "discard",
    "open_stage",
    "stages_of",
    "sweep",
]
