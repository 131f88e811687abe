"""The lake: one description of catalog and warehouse, read by PyIceberg and by Spark alike."""

from pipeline.lake.catalog import Lake

__all__ = ["Lake"]
