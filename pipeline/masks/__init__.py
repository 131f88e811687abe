"""Masks: what lane `mask` has compared and hidden, so that the next mask looks at what has landed since (C28)."""
