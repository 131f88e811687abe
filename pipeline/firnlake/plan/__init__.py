"""Plan: inputs, outputs and reason of each piece of work, deterministic for equal metadata, policy and clock."""
