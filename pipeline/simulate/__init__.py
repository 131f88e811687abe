"""Simulate: the real planner over a virtual clock and synthetic arrivals, without Spark."""

from pipeline.simulate.arrivals import Keys, Workload
from pipeline.simulate.observed import observed
from pipeline.simulate.plot import plot
from pipeline.simulate.replay import Contender
from pipeline.simulate.simulate import Simulated, contenders, simulate

__all__ = ["Contender", "Keys", "Simulated", "Workload", "contenders", "observed", "plot", "simulate"]
