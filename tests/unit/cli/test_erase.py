"""`firn erase`: from a request to its certificate, as a person sees it (C30)."""

import pytest

from firnlake import clock
from firnlake.job.lane import Lane
from firnlake.maintain.maintain import maintain_table
from tests.support.erasing import HOUR
from tests.support.in_process import Firn
from tests.support.topics import DAY, Topic, updates


def test_c30_the_command_from_request_to_certificate(topic: Topic, firn: Firn) -> None:
    topic.land(updates("a=1", "b=1", "c=1"))
    topic.lake.set_properties(topic.table, {"firn.erase.history": "expire"})
    table, now = topic.table, clock.now_ms()
    assert "there is no request to erase a key" in firn("erase", table, "--status").out
    asked = firn("erase", table, "--key", "a", "--within", "4d", "--json").json
    assert (asked["topic"], asked["keys"], asked["log_ends"]) == ("orders", 1, {"0": 3})
    assert "requests to erase keys wait for more requests" in firn("erase", table, "--status").out
    (one,) = firn("erase", table, "--status", "--request", asked["request"], "--json").json
    assert (one["state"], one["waiting"]) == ("open", ["orders-0"])
    assert firn("erase", table, "--status", "--request", "1").code == 1
    refused = firn("erase", table, "--certify")
    assert (refused.code, "no certificate" in refused.out) == (1, True)
    assert "branch main, file " in refused.out
    topic.clean(Lane.ERASE, now, force=True)
    maintain_table(topic.lake, table, now + 2 * DAY + HOUR, remove=True)
    (one,) = firn("erase", table, "--status", "--json").json
    assert (one["state"], one["certificate"]["request"]) == ("certified", asked["request"])
    assert "no request is waiting for a certificate" in firn("erase", table, "--certify").out
    again = firn("erase", table, "--certify", "--request", asked["request"])
    assert (again.code, f"certificate issued {one['certificate']['issued']}" in again.out) == (0, True)


@pytest.mark.parametrize(
    "arguments",
    ["", "--key k --keys f", "--status --certify", "--status --key k"],
)
def test_wrong_usage_is_exit_code_2(topic: Topic, firn: Firn, arguments: str) -> None:
    assert firn("erase", topic.create().table, *arguments.split()).code == 2
