"""Iceberg functions that PyIceberg lacks: commits to several branches, deletion, manifests, row-level deletes."""
