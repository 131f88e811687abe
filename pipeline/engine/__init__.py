"""Engine: runs tasks in threads of this process or in Spark's Python workers; the rest of Firn can't tell which."""

from pipeline.engine.choice import CHOICES, Engines
from pipeline.engine.engine import Engine, WorkerLostError

__all__ = ["CHOICES", "Engine", "Engines", "WorkerLostError"]
