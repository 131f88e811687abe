"""Maintain tables: expire snapshots, rewrite manifests, and delete files that nothing needs."""
