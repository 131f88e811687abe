"""A job: its plans, stage, result and failure, as documents in the table's folder."""
