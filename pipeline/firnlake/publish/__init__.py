"""Publish: the one commit on the real table that carries plans out, by metadata alone. No JVM."""
