"""Adopt: start and stop maintaining a table with other columns than Kafka's. Metadata only, no JVM."""

from pipeline.adopt.adopt import Adoption, Choice, adopt
from pipeline.adopt.release import Release, release

__all__ = ["Adoption", "Choice", "Release", "adopt", "release"]
