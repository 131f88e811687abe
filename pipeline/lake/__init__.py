"""The lake: one description of catalog and warehouse, in PyIceberg's own terms."""

from pipeline.lake.catalog import Lake

__all__ = ["Lake"]
