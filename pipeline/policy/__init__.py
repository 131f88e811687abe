"""Topic policies: Kafka's topic configs as table properties, parsed once into typed, immutable values."""

from pipeline.policy.policy import Policies, Policy

__all__ = ["Policies", "Policy"]
