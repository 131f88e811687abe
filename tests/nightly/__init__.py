"""What takes too long for `make test`: `python -m tests.nightly` runs a part of it, or everything."""
