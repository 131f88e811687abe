"""One module commits to tables, and it believes no error (docs/reliability.md)."""

import ast
from collections.abc import Iterator
from pathlib import Path

PRODUCT = Path(__file__).parents[3] / "pipeline" / "firnlake"
COMMIT = PRODUCT / "iceberg" / "commit.py"
WRITERS = {"append_data_file", "expire_snapshots", "fast_append", "manage_snapshots", "merge_append", "overwrite"}
WRITERS |= {"update_snapshot", "create_table_transaction", "dynamic_partition_overwrite", "upsert"}
"""What PyIceberg commits snapshots and references with. After its last try, it deletes the manifests of a commit that
may have been applied."""


def called(tree: ast.AST) -> Iterator[str]:
    """The names of the methods that are called in ``tree``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def test_one_module_asks_the_catalog_to_commit() -> None:
    asking = {path for path in PRODUCT.rglob("*.py") if "commit_table" in set(called(tree(path)))}
    assert asking == {COMMIT}
    assert list(called(tree(COMMIT))).count("commit_table") == 1


def test_no_module_uses_pyicebergs_own_snapshot_writers() -> None:
    using = {
        (path.relative_to(PRODUCT), name)
        for path in PRODUCT.rglob("*.py")
        for name in WRITERS.intersection(called(tree(path)))
    }
    assert using == set()


def test_no_error_of_a_commit_is_told_from_another() -> None:
    asking = [
        node
        for node in ast.walk(tree(COMMIT))
        if isinstance(node, ast.Try) and any("commit_table" in called(one) for one in node.body)
    ]
    caught = [handler.type for node in asking for handler in node.handlers]
    assert [ast.unparse(kind) if kind else "" for kind in caught] == ["Exception"]
