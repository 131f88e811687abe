"""A key on the command line is written as people write values of its type, or refused with an example."""

import pytest

from tests.support.scenario import Scenario

UUID = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
KEYS: dict[str, tuple[str, list[str], list[str], str]] = {
    "boolean": ("true", ["TRUE"], ["yes"], "boolean, such as true"),
    "int": ("7", ["007"], ["+7", "7.0", "1_000", "99999999999", "0xFFFFFFFF"], "int, such as 42"),
    "long": (f"{-(2**63)}", [], [f"{2**63}", "0x10"], "long, such as 42"),
    "decimal(9, 2)": ("1.50", ["1.5", "+1.500"], ["1.505", "99999999.99", "1.5.0"], "decimal(9, 2), such as 1.50"),
    "decimal(4, 0)": ("1", [], ["1.5"], "decimal(4, 0), such as 1"),
    "decimal(2, 2)": ("0.25", [], ["1.5"], "decimal(2, 2), such as 0.50"),
    "date": ("2026-01-31", [], ["31.01.2026", "2026-02-30"], "date, such as 2026-01-31"),
    "timestamp": (
        "2026-01-31T12:00:00",
        ["2026-01-31 12:00", "2026-01-31T12:00:00.000"],
        ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.0000001"],
        "such as 2026-01-31T12:00:00",
    ),
    "timestamptz": (
        "2026-01-31T12:00:00Z",
        ["2026-01-31 13:00:00+01:00"],
        ["2026-01-31T12:00", "0001-01-01T00:00:00+10:00"],
        "such as 2026-01-31T12:00:00Z",
    ),
    "uuid": (
        UUID,
        [UUID.upper(), UUID.replace("-", "")],
        ["x", UUID.replace("-", "")[1:], UUID.replace("-", "")[1:] + " "],
        "uuid, such as <uuid>",
    ),
    "fixed[2]": ("hex:00ff", ["base64:AP8="], ["a"], "fixed[2], such as hex:00ff"),
    "binary": ("hex:ff", ["\udcff"], [], ""),
    "string": ("a b", ["text:a b"], ["hex:ff"], "string, such as "),
}
"""By type: a key, other ways to write it, other texts, and what their refusal says."""


@pytest.fixture
def keyed(scenario: Scenario) -> Scenario:
    """A table with a key column of each type, and one record."""
    texts = [text.replace("hex:", "0x").replace("T12", " 12") for text, *_ in KEYS.values()]
    scenario.answer("table seq=long " + " ".join(f"'k{place}={kind}'" for place, kind in enumerate(KEYS)))
    scenario.answer("rows seq=1 " + " ".join(f"'k{place}={text}'" for place, text in enumerate(texts)))
    names = ",".join(f"k{place}" for place in range(len(KEYS)))
    assert scenario.answer(f"adopt --key {names} --offset seq") == []
    return scenario


def explained(keyed: Scenario, kind: str, text: str) -> list[str]:
    key = ",".join(text if one == kind else own for one, (own, *_) in KEYS.items())
    return keyed.answer(f"firn explain {{table}} --key '{key}'")


def test_a_key_is_written_as_its_type_is(keyed: Scenario) -> None:
    for kind, (own, texts, _, _) in KEYS.items():
        for text in (own, *texts):
            assert "offset 1" in "".join(explained(keyed, kind, text)), (kind, text)


def test_another_text_is_refused_with_an_example(keyed: Scenario) -> None:
    for kind, (_, _, texts, example) in KEYS.items():
        for text in texts:
            (said,) = explained(keyed, kind, text)
            assert (said.startswith("firn: "), example in said) == (True, True), (kind, text, said)
    assert keyed.answer("ask yes")[0].startswith("firn: ")
