"""The tombstone condition: what PyIceberg parses is what Spark is given, and the rest is refused (C26)."""

import pytest
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
)

from pipeline.errors import RefusedError
from pipeline.lake.condition import Condition

FIELDS = {
    name: NestedField(number, name, kind)
    for number, (name, kind) in enumerate(
        {
            "op": StringType(),
            "gone": BooleanType(),
            "lsn": LongType(),
            "code": IntegerType(),
            "ratio": DoubleType(),
            "price": DecimalType(9, 2),
            "value": BinaryType(),
        }.items(),
        start=1,
    )
}


def condition(text: str) -> Condition:
    return Condition.read(text, FIELDS, "table a.b: tombstone condition")


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("op = 'd'", "(`op` = 'd')"),
        ("'d' == op", "(`op` = 'd')"),
        ("op in ('t', 'd')", "(`op` IN ('d', 't'))"),
        ("op not in ('t', 'd')", "(`op` NOT IN ('d', 't'))"),
        ("value is null", "(`value` IS NULL)"),
        ("value is not null and ratio IS NULL", "((`value` IS NOT NULL) AND (`ratio` IS NULL))"),
        ("gone = true", "(`gone` = TRUE)"),
        ("lsn >= -3 or not code < 2", "((`lsn` >= -3L) OR NOT (`code` < 2L))"),
        ("code between 3 and 5", "((`code` >= 3L) AND (`code` <= 5L))"),
        ("op like 'del%'", "startswith(`op`, 'del')"),
        ("op not like 'del%'", "(NOT startswith(`op`, 'del'))"),
        ("op <> 'it''s \\ a'", "(`op` <> 'it\\'s \\\\ a')"),
        ("\"op\" = 'd'", "(`op` = 'd')"),
        ("false", "FALSE"),
    ],
)
def test_spark_is_given_what_was_parsed(text: str, sql: str) -> None:
    assert condition(text).sql == sql


def test_a_column_that_was_renamed_since_is_called_what_it_is_called_now() -> None:
    read = Condition.read(
        "op = 'd' and lsn > 0", {"op": NestedField(1, "operati`on", StringType()), "lsn": FIELDS["lsn"]}, ""
    )
    assert read.sql == "((`operati``on` = 'd') AND (`lsn` > 0L))"
    assert read.columns == ("lsn", "op")


def test_a_column_whose_null_is_the_tombstone_is_named() -> None:
    assert condition("value IS NULL").null_of == "value"
    assert condition("value IS NULL or op = 'd'").null_of is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("op = ", "is not understood; allowed: comparisons of"),
        ("op = d", "is not understood"),
        ("op = 'd'; drop table x", "is not understood"),
        ("length(op) = 1", "is not understood"),
        ("op like '%d'", "is not understood"),
        ("", "is not understood"),
        ("kind = 'd'", "it names column kind, found: op, gone, lsn"),
        ("op = 3", "column op is string, compared with 3"),
        ("lsn = 1.5", "column lsn is long, compared with Decimal"),
        ("lsn = 'x'", "column lsn is long, compared with 'x'"),
        ("code = 99999999999999999999", "compared with 99999999999999999999"),
        ("gone = 'yes'", "column gone is boolean, compared with 'yes'"),
        ("lsn = true", "column lsn is long, compared with True"),
        ("ratio > 1.5", "column ratio is double"),
        ("price = 1", "column price is decimal"),
        ("ratio is nan", "IsNaN is not among them"),
    ],
)
def test_c26_what_both_sides_might_not_read_alike_is_refused(text: str, said: str) -> None:
    with pytest.raises(RefusedError, match=r"^table a\.b: tombstone condition ") as caught:
        condition(text)
    assert said in str(caught.value)
    assert "allowed: comparisons of a boolean, int, long or string column" in str(caught.value)
