"""The simulation: amplification that can be worked out on paper, arrivals, and bad input."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import RefusedError
from pipeline.lake.topic_partition import TopicPartition
from pipeline.policy import Policy
from pipeline.segments import Segment
from pipeline.segments.segment import TAIL
from pipeline.sense import Lane, PartitionState
from pipeline.simulate import Keys, Simulated, Workload, contenders, observed, plot, simulate
from pipeline.simulate.arrivals import START_MS
from tests.support.lakes import segment
from tests.support.simulated import SECOND, under

NEVER = "2147483647"
ONLY_FULL = {"profile": "kafka"}
ONLY_MERGE = {"profile": "kafka", "min.cleanable.dirty.ratio": "1"}


def one_key(records: int, **others: Any) -> Workload:
    """A record of 100 bytes a second, the first at the start, each a segment of the same key."""
    return Workload(
        rate=1, hours=(records - 1) / 3600, keys=1, records_per_segment=1, record_bytes=100, **others
    )  # fmt: skip


class TestByHand:
    """Arrivals that are small enough for paper."""

    def test_c12_full_cleans_of_one_key(self) -> None:
        """Looks at 1 to 5 s find 2, 2, 3, 2, 3 records, and clean at 2 : 0, 2 : 1 and 2 : 1 dirty to clean ones."""
        (kafka,) = simulate(one_key(6), contenders({}, ("kafka",)), SECOND)
        assert (kafka.space).tolist() == [[2, 2, 3, 2, 3], [1, 2, 1, 2, 1]]
        assert kafka.write_amplification == 3 / 6
        assert kafka.space_amplification == 19 / 10
        assert kafka.most_space == 3
        assert kafka.segments.tolist() == [[2, 1, 2, 1, 2], [0] * 5, [0] * 5, [0, 1, 1, 1, 1]]

    def test_c12_lag_is_that_of_the_oldest_record_outside_the_tail(self) -> None:
        """Cleans at 1, 3 and 5 s; the oldest record left for the looks is of 0, 2, 2, 4 and 4 s."""
        (kafka,) = simulate(one_key(6), contenders({}, ("kafka",)), SECOND)
        assert kafka.lag_ms.tolist() == [1000, 0, 1000, 0, 1000]
        assert kafka.books.longest_lag_ms == 1000

    def test_c13_a_merge_writes_everything_once(self) -> None:
        merged = under(one_key(9), ONLY_MERGE | {"merge.segments": "2"})
        assert merged.write_amplification == 8 / 9
        assert merged.segments[:, -1].tolist() == [1, 4, 0, 0]
        assert merged.books.records == {"live": 9, "superseded": 0, "tombstones removed": 0, "expired": 0}

    def test_c19_retention_writes_nothing(self) -> None:
        dropped = under(one_key(6), {"cleanup.policy": "delete", "retention.ms": "2000", "merge.segments": NEVER})
        assert dropped.write_amplification == 0
        assert dropped.books.records["expired"] == 3

    def test_c9_a_tombstone_goes_in_two_stages(self) -> None:
        """Every record is a tombstone of one key: stamped by the clean that finds it the newest, superseded by the
        next, and never gone as the log end."""
        found = under(one_key(6, delete_ratio=1.0, tombstone_bytes=10), ONLY_FULL | {"delete.retention.ms": "0"})
        assert found.books.records["superseded"] == 5
        assert found.books.records["live"] == 1
        assert np.isnan(found.space).all()

    def test_jobs_of_a_lane_and_look_are_one(self) -> None:
        workload = replace(one_key(3600), partitions=10, rate=10)
        found = under(workload, ONLY_FULL, 600 * SECOND)
        assert found.plans_per_hour[Lane.FULL] == 60
        assert found.jobs_per_hour == 6

    def test_a_sample_stands_for_all(self) -> None:
        workload = Workload(rate=50, hours=2, partitions=20, keys=50)
        everything, part = (under(replace(workload, sample=sample), {}, 60 * SECOND) for sample in (20, 5))
        assert part.write_amplification == pytest.approx(everything.write_amplification, rel=0.05)
        assert part.space_amplification == pytest.approx(everything.space_amplification, rel=0.05)
        assert part.segments.mean() == pytest.approx(everything.segments.mean(), rel=0.05)
        assert sum(part.plans_per_hour.values()) == pytest.approx(sum(everything.plans_per_hour.values()), rel=0.05)

    def test_c16_segments_of_the_tail_that_lose_nothing_stay(self) -> None:
        """Keys are never updated: what a full clean wrote once is only read by the next."""
        workload = Workload(rate=1, hours=1, distribution=Keys.APPEND, update_ratio=0, records_per_segment=10)
        rules = {"segment.bytes": "100000", **ONLY_FULL, "min.cleanable.dirty.ratio": "0"}
        (side,) = contenders(rules, ("firn",))
        left, whole = simulate(workload, (side, replace(side, leaves_in_place=False)))
        assert left.write_amplification < 2 < 10 < whole.write_amplification
        assert left.space_amplification == whole.space_amplification == 1


class TestGoal:
    """1,000,000 records over 50,000 keys in segments of 20, at 4 a second: figures, not times."""

    @pytest.mark.parametrize("distribution", [Keys.UNIFORM, Keys.ZIPF])
    def test_write_and_space_amplification_of_the_defaults(self, distribution: Keys) -> None:
        workload = Workload(rate=4, hours=1_000_000 / 4 / 3600, keys=50_000, distribution=distribution)
        found = under(workload, {}, 60 * SECOND)
        assert found.write_amplification <= 1.6
        assert found.space_amplification <= 2.0
        landed, merged, _, tail = found.segments.mean(axis=1)
        assert landed < 32
        assert 32 < merged < 160
        assert tail <= 1

    def test_kafkas_and_warpstreams_rules_on_the_same_arrivals(self) -> None:
        workload = Workload(rate=4, hours=1_000_000 / 4 / 3600, keys=50_000)
        kafka, warpstream = simulate(workload, contenders({}, ("kafka", "warpstream")))
        assert kafka.write_amplification == pytest.approx(1.02, rel=0.05)
        assert kafka.space_amplification == pytest.approx(1.52, rel=0.05)
        assert warpstream.write_amplification == pytest.approx(2.20, rel=0.10)
        assert warpstream.space_amplification == pytest.approx(2.72, rel=0.10)


class TestArrivals:
    """Arrivals and their times."""

    def test_zipf_follows_its_ranks(self) -> None:
        keys = Workload(rate=1000, hours=1, distribution=Keys.ZIPF, keys=100).stream(0).keys
        seen = np.bincount(keys, minlength=100)
        assert seen[0] / seen[1] == pytest.approx(2, rel=0.05)
        assert seen[0] / seen[9] == pytest.approx(10, rel=0.05)

    def test_append_updates_recent_keys(self) -> None:
        stream = Workload(rate=100, hours=1, distribution=Keys.APPEND, update_ratio=0.3, delete_ratio=0.1).stream(0)
        newest = np.maximum.accumulate(stream.keys)
        back = (newest - stream.keys)[np.diff(newest, prepend=-1) == 0]
        assert len(back) / len(stream.keys) == pytest.approx(0.3, rel=0.05)
        assert stream.tombstones.mean() == pytest.approx(0.1, rel=0.05)
        assert np.median(back) < np.mean(back) / 10

    def test_topic_partitions_take_turns(self) -> None:
        workload = Workload(rate=2, hours=1, partitions=2, records_per_segment=10)
        first, second = (workload.stream(number).landed_ms for number in range(2))
        assert first[:2].tolist() == [START_MS + 9_000, START_MS + 19_000]
        assert second[0] == START_MS + 14_000

    @pytest.mark.parametrize("distribution", Keys)
    def test_the_same_seed_gives_the_same(self, distribution: Keys) -> None:
        found = [
            Workload(hours=1, distribution=distribution, seed=seed, delete_ratio=0.05).stream(1) for seed in (1, 1, 2)
        ]
        assert (found[0].keys == found[1].keys).all()
        assert (found[0].tombstones == found[1].tombstones).all()
        assert not (found[0].keys == found[2].keys).all()


class TestBadInput:
    """C26: which option, what was found, what is allowed."""

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"rate": 0}, "rate is 0; allowed: a number greater than 0"),
            ({"rate": -1}, "rate is -1; allowed"),
            ({"rate": float("nan")}, "rate is nan; allowed"),
            ({"hours": float("inf")}, "hours is inf; allowed"),
            ({"partitions": 0}, "partitions is 0; allowed: a whole number, 1 or more"),
            ({"records_per_segment": 0}, "records-per-segment is 0; allowed"),
            ({"keys": 0}, "keys is 0; allowed"),
            ({"delete_ratio": -0.1}, "delete-ratio is -0.1; allowed: a number between 0 and 1"),
            ({"update_ratio": 1.1}, "update-ratio is 1.1; allowed: a number between 0 and 1"),
            ({"zipf_exponent": -1}, "zipf-exponent is -1; allowed: a number, 0 or more"),
            ({"seed": -1}, "seed is -1; allowed"),
            (
                {"distribution": Keys.APPEND, "delete_ratio": 0.3},
                "delete-ratio is 0.3; allowed: at most update-ratio, which is 0.1",
            ),
            ({"partitions": 1_000_000, "hours": 1}, "hours is 1; allowed: at least 1388.89, or nothing lands"),
            ({"rate": 1e9}, "rate is 1000000000.0; allowed: at most 100,000,000 simulated records"),
        ],
    )
    def test_c26_a_workload_without_sense_is_refused(self, options: dict[str, Any], text: str) -> None:
        with pytest.raises(RefusedError) as refused:
            Workload(**options)
        assert str(refused.value).startswith(text)

    @pytest.mark.parametrize("every_ms", [0, -5, 1])
    def test_c26_a_look_that_never_comes_or_never_ends_is_refused(self, every_ms: int) -> None:
        with pytest.raises(RefusedError, match=f"every is {every_ms} ms; allowed: at least"):
            simulate(Workload(), contenders({}), every_ms)

    def test_c26_unknown_rules_and_properties_are_refused(self) -> None:
        with pytest.raises(RefusedError, match="rules 'redpanda' are unknown; allowed: firn, kafka, warpstream"):
            contenders({}, ("redpanda",))
        with pytest.raises(RefusedError, match=r"property firn\.merge\.segmens = '3' is unknown; allowed: "):
            contenders({"merge.segmens": "3"})


class TestObserved:
    """Arrivals derived from a table."""

    @staticmethod
    def tail(partition: int, records: int) -> Segment:
        where = TopicPartition("orders", partition)
        return replace(segment("tail", 0, records - 1, TAIL), path=f"tail-{partition}", topic_partition=where)

    def test_an_empty_table_tells_nothing(self) -> None:
        assert observed([]) == {}

    def test_the_mean_of_topic_partitions_that_tell_stands_for_all(self) -> None:
        """Two segments of 10 records of 7 bytes in the 4 s since the first, 3 topic partitions, tails of 20 and 41."""
        landed = [segment(f"l{n}", 20 + 10 * n, 29 + 10 * n, bytes=70, committed_ms=n * SECOND) for n in range(3)]
        parts = ((self.tail(0, 20), *landed), (self.tail(1, 41),), (replace(landed[0], path="other"),))
        states = [PartitionState(TopicPartition("orders", n), own, Policy(), 4 * SECOND) for n, own in enumerate(parts)]
        assert observed(states) == {
            "partitions": 3,
            "rate": 15.0,
            "records_per_segment": 10,
            "record_bytes": 7,
            "keys": 30,
        }


class TestPlot:
    """Pictures."""

    @pytest.fixture
    def results(self) -> list[Simulated]:
        return simulate(Workload(hours=1, keys=100), contenders({}))

    @pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml")])
    def test_a_picture_is_written(self, results: list[Simulated], tmp_path: Path, name: str, start: bytes) -> None:
        pytest.importorskip("matplotlib")
        assert plot(results, tmp_path / name).read_bytes().startswith(start)

    def test_c26_other_formats_and_missing_folders_are_refused(self, results: list[Simulated], tmp_path: Path) -> None:
        with pytest.raises(RefusedError, match=r"ends in '\.gif'; allowed: \.png, \.svg"):
            plot(results, tmp_path / "a.gif")
        with pytest.raises(RefusedError, match=r"there is no folder .*nowhere"):
            plot(results, tmp_path / "nowhere" / "a.png")

    def test_c26_without_matplotlib_the_extra_is_named(
        self, results: list[Simulated], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("matplotlib", "matplotlib.figure"):
            monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(RefusedError, match=r"needs matplotlib, which is not installed; allowed: .*firn\[plot\]"):
            plot(results, tmp_path / "a.png")
