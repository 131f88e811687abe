"""Validate: check a job's output against its input and the promises. No code is shared with the cleaner."""
