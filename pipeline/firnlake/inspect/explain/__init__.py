"""Explain the state of a record, a segment or a topic partition with the code that makes the decisions (no JVM)."""
