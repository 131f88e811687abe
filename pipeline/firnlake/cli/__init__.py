"""The ``firn`` command."""
