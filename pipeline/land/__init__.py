"""Land: appends files of Kafka records to a table as L0 segments, in one commit."""

from pipeline.land.land import Landed, land

__all__ = ["Landed", "land"]
