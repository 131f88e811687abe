"""Engine: where tasks run. Threads of this process or Spark's Python workers; nothing else of Firn knows which."""

from pipeline.engine.choice import CHOICES, Engines
from pipeline.engine.engine import Engine, WorkerLostError

__all__ = ["CHOICES", "Engine", "Engines", "WorkerLostError"]
