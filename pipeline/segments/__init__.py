"""Segments: the live data files of a table with the facts that planning needs, read from manifests alone."""

from pipeline.segments.read import read
from pipeline.segments.segment import Segment, Segments, Stray

__all__ = ["Segment", "Segments", "Stray", "read"]
