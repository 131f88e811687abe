"""Helpers that several layers of tests share: foreign engines, and contracts put to more than one implementation."""
