"""A piece of work: its plans, stage, result and failure, as documents on the warehouse."""
