"""What users can touch changes on purpose only: who changes it rewrites tests/nets/touchable.txt in the same commit."""

from tests.nets import touchable


def test_what_users_can_touch_is_what_is_listed() -> None:
    listed = set(touchable.LIST.read_text(encoding="utf-8").splitlines())
    assert set(touchable.lines()) == listed, "to rewrite the list: python -m tests.nets.touchable"
