"""What the judges are shown of a stage: all of it, in few Spark jobs, and segments that stay by themselves."""

from pyspark.sql import functions as F

from pipeline.compact import compact
from pipeline.compact.inputs import spark_name
from pipeline.lake.columns import Columns
from pipeline.plan import Plan
from pipeline.stage import INPUTS, Stage
from pipeline.validate import Judged, validate
from pipeline.validate.parts import left_in_place, of_plans
from tests.spark.topics import Record, Topic, updates


def judge(topic: Topic, plan: Plan) -> tuple[Stage, Judged]:
    """Compacts and validates ``plan``; its stage and what was found."""
    (outcome,) = compact(topic.lake, [plan], topic.spark)
    (judged,) = validate(topic.lake, [outcome.stage], topic.spark)
    return Stage.load(topic.lake, outcome.stage), judged


def test_a_plan_that_passes_takes_two_spark_jobs(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "a=2"), updates("c=", "b=", "d=1", start=3))
    topic.clean("merge")
    topic.land(updates("d=2", start=6), updates("e=1", start=7))
    topic.clean("merge")
    (plan,) = topic.plans("clean")
    _, judged = judge(topic, plan)
    assert judged.passed
    assert judged.plan == plan.id
    assert judged.verdict is not None
    assert 1 <= judged.verdict.spark_jobs <= 2


def test_c1_a_value_that_was_changed_on_the_way_is_found_by_the_checksum(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"), updates("a=2", start=2))
    (outcome,) = compact(topic.lake, topic.plans("full", force=True), topic.spark)
    stage = Stage.load(topic.lake, outcome.stage)
    assert stage.books is not None
    assert stage.books.checksum is not None
    books, name = stage.books, spark_name(topic.lake, stage.identifier)
    value = F.expr("if(offset = 1, cast('x' AS binary), value)")
    topic.spark.table(name).withColumn("value", value).writeTo(name).overwrite(F.lit(True))
    Stage.load(topic.lake, stage.identifier).record_books(topic.lake, books)
    (judged,) = validate(topic.lake, [stage.identifier], topic.spark)
    assert judged.verdict is not None
    (finding,) = judged.verdict.failures
    assert (finding.name, [sample.offset for sample in finding.samples]) == ("expect_records_unchanged", [1])


def test_what_stays_in_place_is_told_apart_from_what_is_rewritten(topic: Topic) -> None:
    """C16: the judges see the records of every segment that stays, and of no other."""
    records = [Record(offset, b"k%03d" % offset, bytes(range(256)) * 2) for offset in range(100)]
    topic.create(segment_bytes="1024").land(*(records[start : start + 20] for start in range(0, 100, 20)))
    topic.clean("full")
    topic.land([Record(100, b"k045", b"new")])
    (plan,) = topic.plans("full", force=True)
    stage, judged = judge(topic, plan)
    assert judged.passed
    assert judged.verdict is not None
    said = " ".join(finding.sentence for finding in judged.verdict.expectations)
    assert "none of the 80 records in segments left in place is of a key that was read" in said
    columns = Columns.of(stage.table, stage.identifier)
    inputs = topic.spark.read.option("versionAsOf", INPUTS).table(spark_name(topic.lake, stage.identifier))
    replaced = {path for paths in stage.replaced().values() for path in paths}
    left = left_in_place(inputs, [plan], replaced, columns)
    assert sorted(row["offset"] for row in left.select("offset").collect()) == [*range(40), *range(60, 100)]
    assert left_in_place(inputs, [plan], {one.path for one in plan.inputs}, columns).count() == 0
    assert of_plans(inputs, [plan], columns).count() == 101
    assert of_plans(inputs, [plan.model_copy(update={"partition": 1})], columns).count() == 0
