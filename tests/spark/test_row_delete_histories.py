"""Random histories of row-level deletes: after every commit Spark's reader sees what PyIceberg's sees. Where there are
equality deletes, which PyIceberg can't read, it sees what a plain reader of the specification sees (C27).

A history takes several seconds. ``FIRN_HISTORIES`` says how many there are, from seed 1; ``make row-deletes`` runs 300.
`tests/nightly/histories` compares such histories with a model of what Firn keeps, without Spark.
"""

import os
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.support.scenario import Scenario

pytestmark = pytest.mark.nightly

HISTORIES = int(os.environ.get("FIRN_HISTORIES", "3"))
LANES = ("convert", "merge", "clean", "tier", "full")
ROUNDS = 4
KEYS, VALUES = ("-", "a", "b", "c", "d"), ("", "x", "y", "z")


class History:
    """A table that somebody upserts into; every change is a commit that is looked at."""

    def __init__(self, scenario: Scenario, spark: SparkSession, random: Random) -> None:
        self.scenario, self.spark, self.random = scenario, spark, random
        self.landed = 0

    def land(self) -> str:
        """Records of both partitions; some have no key, and some are tombstones."""
        records = [
            f"{self.random.randrange(2)}/{self.random.choice(KEYS)}={self.random.choice(VALUES)}@{self.landed + number}"
            for number in range(self.random.randint(2, 6))
        ]
        self.landed += len(records)
        return f"append {' '.join(records)}"

    def delete(self) -> str:
        """Position deletes of a few records, or an equality delete by the key, by another column, or by both."""
        key, value = self.random.choice(KEYS), self.random.choice(VALUES) or "-"
        offsets = " ".join(str(self.random.randrange(self.landed)) for _ in range(3))
        where = f"{self.random.randrange(2)}/key"
        equal = [f"key {key}", f"value {value}", f"key,value {key},{value}", f"{where} {key}"]
        return self.random.choice([f"delete {offsets}", *(f"delete_equal {one}" for one in equal)])

    def do(self, command: str) -> list[str]:
        """Give a command, and have all readers look."""
        said = self.scenario.answer(command)
        columns = ("partition", "offset", "key", "value")
        found = self.spark.table(f"lake.{self.scenario.name}").select(*columns).collect()
        wanted = [tuple(row[name] for name in columns) for row in self.scenario.rows()]
        assert sorted(map(repr, map(tuple, found))) == sorted(map(repr, wanted)), command
        return said


@pytest.mark.parametrize("seed", range(1, HISTORIES + 1))
def test_c27_every_reader_agrees_after_every_commit(scenario: Scenario, spark: SparkSession, seed: int) -> None:
    random = Random(seed)  # noqa: S311  # no secret
    scenario.answer(f"upserted {'unpartitioned ' * (seed % 2)}tier.runs=2 delete.retention.ms=0 position.deletes.max=2")
    history = History(scenario, spark, random)
    for step in range(ROUNDS):
        scenario.answer(f"at {step}d")
        for change in (
            history.land,
            history.land,
            *random.choices([history.land, history.delete, history.delete], k=3),
        ):
            history.do(change())
        lane = random.choice(LANES)
        staged = random.random() < 0.5 and not scenario.answer(f"stage {lane}!")
        if staged:
            history.do(history.delete())
        assert "failed" not in str(history.do("publish" if staged else f"{lane}!"))
    scenario.answer(f"at {ROUNDS}d")
    history.do("full!")
