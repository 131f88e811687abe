"""The ids of the tables' DAGs: one for every name, and always one that Airflow accepts."""

import re
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from firnlake.airflow.configuration import dag_id_of

TOKENS = st.lists(st.sampled_from(["a", "0", "-", "_", "__", ".", ".5f", ".sha256-", "é", " ", "A"]), max_size=8)
NAMES = TOKENS.map("".join) | st.text(max_size=300)
"""Names that may be taken for each other once they are ids, and any others."""
VALID = re.compile(r"[A-Za-z0-9_.-]{1,250}")
"""The ids that Airflow accepts everywhere, from its metadata database to a URL; two dots in a row are refused too."""


def test_r20_ordinary_names_are_readable() -> None:
    assert dag_id_of("shop.orders") == "firn__shop__orders"
    assert dag_id_of("lake.eu-west.clicks_2026") == "firn__lake__eu-west__clicks_2026"


def test_r20_a_dot_and_two_underscores_differ() -> None:
    names = ("hr.salaries__eu", "hr__salaries.eu", "hr.salaries.eu", "hr_.salaries__eu", "hr._salaries_.eu")
    assert len({dag_id_of(name) for name in names}) == len(names)


def test_r20_short_names_never_share_a_dag_id() -> None:
    names = ["".join(letters) for length in range(8) for letters in product("a._", repeat=length)]
    assert len({dag_id_of(name) for name in names}) == len(names)


@given(NAMES, NAMES)
def test_r20_two_tables_never_share_a_dag_id(one: str, other: str) -> None:
    assert (dag_id_of(one) == dag_id_of(other)) == (one == other)


@given(NAMES)
def test_r20_every_name_has_a_valid_dag_id(name: str) -> None:
    dag_id = dag_id_of(name)
    assert VALID.fullmatch(dag_id)
    assert ".." not in dag_id


def test_r20_long_names_that_end_differently_differ() -> None:
    long = "shop." + "o" * 300
    assert dag_id_of(f"{long}1") != dag_id_of(f"{long}2")
    assert VALID.fullmatch(dag_id_of(f"{long}1"))
