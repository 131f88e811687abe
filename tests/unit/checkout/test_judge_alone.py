"""The judge asks nobody: it imports nothing that plans or compacts, and none of the rules that say what is due."""

from tests.nets import layout

NEITHER = {("plan",), ("compact",), ("table", "partition"), ("table", "budget")}


def test_r15_the_judge_imports_neither_plan_nor_compact_nor_their_rules() -> None:
    every = [*layout.modules("pipeline"), *layout.modules("expectations")]
    judging = [one for one in every if one.name[:2] == ("firnlake", "validate") or one.name[0] != "firnlake"]
    assert len(judging) > 20
    wrong = [
        (".".join(one.name), ".".join(name))
        for one in judging
        for name in one.imported
        if name[0] == "firnlake" and not NEITHER.isdisjoint({name[1:2], name[1:3]})
    ]
    assert wrong == []
