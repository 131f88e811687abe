"""The ids of the tables' DAGs: one for every name, and always one that Airflow accepts."""

import re
from itertools import product

from hypothesis import example, given
from hypothesis import strategies as st

from firnlake.airflow.configuration import dag_id_of

TOKENS = st.lists(st.sampled_from(["a", "0", "-", "_", "__", ".", ".5f", ".sha256-", "é", " ", "A"]), max_size=8)
NAMES = TOKENS.map("".join) | st.text(max_size=300)
"""Names that may be taken for each other once they are ids, and any others."""
LONG = "shop." + "o" * 300


def test_ordinary_names_are_readable() -> None:
    assert dag_id_of("lake.eu-west.clicks_2026") == "firn__lake__eu-west__clicks_2026"


def test_short_names_never_share_a_dag_id() -> None:
    """A dot and two underscores, for example."""
    names = ["".join(letters) for length in range(8) for letters in product("a._", repeat=length)]
    assert len({dag_id_of(name) for name in names}) == len(names)


@given(NAMES, NAMES)
@example(f"{LONG}1", f"{LONG}2")
def test_two_tables_never_share_a_dag_id_and_each_is_valid(one: str, other: str) -> None:
    """Airflow accepts such ids everywhere, from its metadata database to a URL; two dots in a row it refuses."""
    assert (dag_id_of(one) == dag_id_of(other)) == (one == other)
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,250}", dag_id_of(one))
    assert ".." not in dag_id_of(one)
