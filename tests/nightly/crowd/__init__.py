"""Appenders, compactors, readers and other tools at the same time: `soak` looks for violations."""
