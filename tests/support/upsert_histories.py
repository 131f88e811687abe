"""Random histories of a table that somebody upserts into: what lands, which deletes, and the lane that runs."""

from typing import NamedTuple

from hypothesis import strategies as st


class Step(NamedTuple):
    """Records that land, deletes, and a lane."""

    batch: list[tuple[int, str | None]]
    """Id and city of the records."""
    ids: list[int]
    """Ids that an equality delete hides."""
    cities: list[str | None]
    """The city that an equality delete hides, if any."""
    victims: list[int]
    """Records that position deletes hide, as places among the visible ones, counted round and round."""
    lane: str
    meanwhile: bool
    """True when the records land while the lane's plans are under way."""


def histories(*lanes: str) -> st.SearchStrategy[list[Step]]:
    """Three to seven steps, each with one of ``lanes``; one that is named twice runs twice as often."""
    cities = st.sampled_from(["x", "y", None])
    step = st.builds(
        Step,
        batch=st.lists(st.tuples(st.integers(0, 4), cities), min_size=1, max_size=3),
        ids=st.lists(st.integers(0, 4), max_size=2),
        cities=st.lists(cities, max_size=1),
        victims=st.lists(st.integers(0, 20), max_size=2),
        lane=st.sampled_from(lanes),
        meanwhile=st.booleans(),
    )
    return st.lists(step, min_size=3, max_size=7)
