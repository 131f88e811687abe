"""The figures for a person who is asked before a run publishes."""

from firnlake.airflow.figures import figures_of
from firnlake.job.stage import open_stages
from tests.support.topics import Topic, request, updates


def figures(text: str) -> list[dict[str, str]]:
    """The rows of the table by column."""
    header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines())
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_c24_c30_a_cleaning_and_an_erasure_are_told_apart(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "a=2", "c=1"), updates("b=2", start=4))
    request(topic, b"a")
    rows = {}
    for lane in ("erase", "full"):
        plans = topic.plans(lane, force=True)
        stages = open_stages(topic.lake, plans)
        assert [row["verdict"] for row in figures(figures_of(topic.lake, stages))] == [
            "not compacted, or not validated"
        ]
        topic.validated(plans)
        (rows[lane],) = figures(figures_of(topic.lake, stages))
    counted = ("records in", "records out", "gone", "verdict")
    assert [rows["erase"][name] for name in counted] == ["4", "2", "2 erased", "passed"]
    assert [rows["full"][name] for name in counted] == ["5", "3", "2 superseded", "passed"]
