"""The lake: one description of catalog and warehouse, in PyIceberg's terms."""

from pipeline.lake.catalog import Lake

__all__ = ["Lake"]
