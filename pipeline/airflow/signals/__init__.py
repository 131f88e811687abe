"""Signals about a table: metrics for monitoring, notices for people."""
