"""Explain why a record, a segment or a topic partition is as it is, by asking the code that decides (no JVM)."""
