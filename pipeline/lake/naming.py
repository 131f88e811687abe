"""Rules for table names, which become folder names."""

from pipeline.errors import RefusedError


def check_name(identifier: str) -> None:
    """Raise RefusedError for a name that is not ``namespace.name``, or that could leave its folder."""
    namespace, _, name = identifier.rpartition(".")
    parts = [*namespace.split("."), name]
    if not all(parts):
        raise RefusedError(f"table {identifier!r} is not a table name; allowed: namespace.name")
    if not identifier.isprintable() or set("/\\") & set(identifier):
        raise RefusedError(
            f"table {identifier!r} has a name that can't be a folder; allowed: printable characters without / and \\"
        )
