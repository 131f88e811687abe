"""Segments: the live data files of a table and the facts that planning needs, from manifests alone."""

from pipeline.segments.read import read
from pipeline.segments.segment import Segment, Segments, Stray

__all__ = ["Segment", "Segments", "Stray", "read"]
