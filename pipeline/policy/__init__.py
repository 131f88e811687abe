"""Topic policies: Kafka's topic configs as table properties, parsed once into typed, immutable values."""

from pipeline.policy.policies import Policies, samples_of, validation_of
from pipeline.policy.policy import Policy

__all__ = ["Policies", "Policy", "samples_of", "validation_of"]
