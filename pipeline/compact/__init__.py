"""Compact: read a plan's segments as Arrow batches and write what the rules of `outcome` keep."""
