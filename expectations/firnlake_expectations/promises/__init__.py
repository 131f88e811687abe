"""The promises, as SQL."""
