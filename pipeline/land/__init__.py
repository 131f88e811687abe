"""Land: files of Kafka records become L0 segments of a table, in one commit."""

from pipeline.land.land import Landed, land

__all__ = ["Landed", "land"]
