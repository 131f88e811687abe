"""Adopt: maintain a table that is not one of Kafka's columns, and let go of it again. Metadata only, no JVM."""

from pipeline.adopt.adopt import Adoption, Choice, adopt
from pipeline.adopt.release import Release, release

__all__ = ["Adoption", "Choice", "Release", "adopt", "release"]
