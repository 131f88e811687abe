"""Benchmarks: Firn beside what a user would pick instead, on the same files, in the same run (``make bench``)."""
