"""The shape of the code holds: floors, no circles, modules that can be read in one go, one module that commits."""

import ast
from pathlib import Path

import pytest

from tests.nets import layout, touchable
from tests.nets.layout import PRODUCT, modules

AT_MOST = {
    f"modules above {layout.LONG} lines": 0,
    "modules that commit": 1,
    "modules that delete": 4,
}
COMMIT = Path("pipeline/firnlake/iceberg/commit.py")
WRITERS = {"append_data_file", "expire_snapshots", "fast_append", "manage_snapshots", "merge_append", "overwrite"}
WRITERS |= {"update_snapshot", "create_table_transaction", "dynamic_partition_overwrite", "upsert"}
"""What PyIceberg commits snapshots and references with. After its last try, it deletes the manifests of a commit that
may have been applied."""
NOT_FOR_THE_JUDGE = {
    *{("plan",), ("compact",), ("table", "partition"), ("table", "budget")},
    *{("lanes", path.stem) for path in (layout.ROOT / "pipeline/firnlake/lanes").glob("*.py")},
}


def test_the_shape_holds() -> None:
    measured = layout.measured()
    assert {figure: measured[figure] for figure, most in AT_MOST.items() if measured[figure] > most} == {}


@pytest.mark.parametrize("part", PRODUCT)
def test_no_public_class_has_two_homes(part: str) -> None:
    classes = [node.name for module in modules(part) for node in module.nodes if isinstance(node, ast.ClassDef)]
    public = sorted(name for name in classes if not name.startswith("_"))
    assert public == sorted(set(public))


def test_the_infrastructure_imports_no_tests() -> None:
    assert not [module.path for module in modules("infra") if any(name[0] == "tests" for name in module.imported)]


def test_every_box_stands_on_one_floor() -> None:
    boxes = {box for module in modules(*PRODUCT, "infra") if (box := layout.box_of(module.name))}
    assert sorted(box for floor in layout.FLOORS for box in floor) == sorted(boxes)


def test_a_box_imports_lower_floors_alone() -> None:
    assert layout.against(modules(*PRODUCT, "infra")) == set()


def test_r15_the_judge_imports_nothing_that_plans_or_compacts_or_says_what_is_due() -> None:
    assert "firnlake" not in {name[0] for module in modules("expectations") for name in module.imported}
    judging = [module for module in modules("pipeline") if module.name[:2] == ("firnlake", "validate")]
    assert judging
    imported = {name for module in judging for name in module.imported if name[0] == "firnlake"}
    assert not [name for name in imported if not NOT_FOR_THE_JUDGE.isdisjoint({name[1:2], name[1:3]})]


def test_one_call_commits_and_no_module_uses_pyicebergs_own_snapshot_writers() -> None:
    called = {module.path: list(_called(*module.nodes)) for module in modules(*PRODUCT)}
    assert {path: names.count("commit_table") for path, names in called.items() if "commit_table" in names} == {
        COMMIT: 1
    }
    assert [(path, name) for path, names in called.items() for name in WRITERS.intersection(names)] == []


def test_no_error_of_a_commit_is_told_from_another() -> None:
    (module,) = (module for module in modules("pipeline") if module.path == COMMIT)
    tries = [node for node in module.nodes if isinstance(node, ast.Try)]
    asking = [node for node in tries if any("commit_table" in _called(*ast.walk(one)) for one in node.body)]
    caught = [handler.type for node in asking for handler in node.handlers]
    assert [ast.unparse(kind) if kind else "" for kind in caught] == ["Exception"]


def test_what_users_can_touch_is_what_is_listed() -> None:
    """Whoever changes it rewrites tests/nets/touchable.txt in the same commit."""
    listed = set(touchable.LIST.read_text(encoding="utf-8").splitlines())
    assert set(touchable.lines()) == listed, "to rewrite the list: python -m tests.nets.touchable"


def _called(*nodes: ast.AST) -> list[str]:
    """The names of the methods that are called in ``nodes``."""
    return [node.func.attr for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
