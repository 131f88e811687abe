"""What a table may be called: names become folders, and some are kept for Firn's own tables beside others."""

from typing import Final

from pipeline.errors import RefusedError

STAGE: Final = "__stage_"
BESIDE: Final = ("__quarantine", "__tombstones")


def check_name(identifier: str) -> None:
    """Refuse a name that is not ``namespace.name``, that could leave its folder, or that is kept for Firn's tables."""
    namespace, _, name = identifier.rpartition(".")
    parts = [*namespace.split("."), name]
    if not all(parts):
        raise RefusedError(f"table {identifier!r} is not a table name; allowed: namespace.name")
    if not identifier.isprintable() or set("/\\") & set(identifier):
        raise RefusedError(
            f"table {identifier!r} can't be called so: its name becomes a folder; allowed: printable characters "
            "without / and \\"
        )
    if STAGE in name or name.endswith(BESIDE):
        raise RefusedError(
            f"table {identifier!r} can't be called so: Firn's own tables are; allowed: a name without {STAGE} that "
            f"does not end with {' or '.join(BESIDE)}"
        )
