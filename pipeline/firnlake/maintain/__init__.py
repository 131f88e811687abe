"""Maintain: snapshots expire, manifests are rewritten, files that nothing needs go."""
