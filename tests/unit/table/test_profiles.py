"""What people are told of the thresholds: their values, whose defaults they are, and what topics override (C21)."""

from firnlake.table.policies import Policies
from firnlake.table.profiles import PROFILES
from firnlake.table.settings import thresholds


def test_thresholds_are_told_with_their_source_and_the_topics_that_have_others() -> None:
    set_here = {"firn.tier.runs": "4", "firn.min.cleanable.dirty.ratio": "0.66"}
    own = {f"firn.topic.t{number}.tier.runs": "5" for number in range(21)}
    *shown, last, more = thresholds("lake.t", Policies.parse("lake.t", set_here).default, own)
    assert shown[:6] == [
        "merge.segments = 32, as in WarpStream",
        "clean.segments = 32, as in WarpStream",
        "tier.runs = 4, set here",
        "min.cleanable.dirty.ratio = 0.66, set here",
        "full.interval.ms = 86400000 (1d), as in WarpStream",
        "max.input.bytes = 137438953472 (128GiB), as in WarpStream",
    ]
    assert (len(shown), last, more) == (25, "topic t8: tier.runs = 5", "1 more topic: `firn config lake.t` lists them")


def test_every_profile_is_one_that_can_be_chosen() -> None:
    for name in PROFILES:
        assert Policies.parse("lake.t", {"firn.profile": name}).default.profile == name
