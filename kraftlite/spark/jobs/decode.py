"""From the bytes of records to rows, and what does not become a row, with the reason.

Every row keeps where it came from: `_topic`, `_partition`, `_offset`, `_timestamp`. `event_date` is the day (UTC) of the event's
own time, or of the record's timestamp when no column is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FIRST_MS: Final = -62_135_596_800_000
"""The year 1 begins."""
_LAST_MS: Final = 253_402_300_799_999
"""The year 9999 ends."""
FORMATS: Final = ("json", "csv", "raw")
CORRUPT: Final = "_corrupt_record"
PLACE: Final = ("_topic", "_partition", "_offset", "_timestamp")
REASON: Final = "_reason"
"""In decoded rows; `reason` in quarantine."""
_OWN: Final = (*PLACE, "_event_time", "event_date", REASON, "_key", "_value")
SAMPLE_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """`schema` is DDL, needed for json and csv. `event_time` names a column of it: a timestamp, a text of one, or epoch
    milliseconds; None: the record's timestamp. `options` are those of Spark's JSON or CSV reader."""

    kind: str
    schema: str | None = None
    event_time: str | None = None
    options: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in FORMATS:
            raise ValueError(f"format is {self.kind!r}; allowed are {', '.join(FORMATS)}")
        if self.kind == "raw" and self.event_time is not None:
            raise ValueError("format raw has no columns of its own to take an event time from; use json or csv")


def infer_schema(spark: SparkSession, kind: str, rows: DataFrame, options: Mapping[str, str]) -> str:
    """The DDL of what a sample of values (`rows` has the columns of the source) looks like. ValueError when it is empty."""
    from pyspark.sql import functions as F

    texts = [row[0] for row in rows.select(F.col("value").cast("string")).where("value is not null").take(SAMPLE_ROWS)]
    if not texts:
        raise ValueError("there is no record to infer a schema from; give --schema")
    lines = spark.sparkContext.parallelize(texts, 1)
    if kind == "json":
        found = spark.read.options(**dict(options)).json(lines)
    else:
        found = spark.read.options(**{"inferSchema": "true", **options}).csv(lines)
    fields = [field for field in found.schema.fields if field.name != CORRUPT]
    if not fields:
        raise ValueError(f"none of the {len(texts)} records looked at is {kind.upper()}; give --schema")
    return type(found.schema)(fields).toDDL()


def decode(rows: DataFrame, form: Format) -> DataFrame:
    """One row per record: the columns of the format, `PLACE`, `event_date`, and `REASON`, which is null for a good one.

    Raises ValueError for a format with a column that is called like one of these.
    """
    from pyspark.sql import functions as F

    place = [F.col(name[1:]).alias(name) for name in PLACE]
    if form.kind == "raw":
        kept = [F.col(name) for name in ("key", "value", "timestampType") if name in rows.columns]
        return rows.select(*kept, *place, F.to_date("timestamp").alias("event_date"), F.lit(None).cast("string").alias(REASON))
    text = F.col("value").cast("string")
    parsed = _parsed(text, form)
    staged = rows.withColumn("_parsed", parsed)
    moment = F.col("timestamp") if form.event_time is None else _moment(staged, form.event_time)
    reason = (
        F.when(F.col("value").isNull(), "no value")
        .when(~F.is_valid_utf8(text), "not UTF-8")
        .when(F.col("_parsed").isNull(), f"not {form.kind.upper()}")
        .when(F.col(f"_parsed.{CORRUPT}").isNotNull(), _why_corrupt(text, form.kind))
        .when(moment.isNull(), f"no event time in {form.event_time}")
    )
    names = [field.name for field in staged.schema["_parsed"].dataType.fields if field.name != CORRUPT]  # type: ignore[attr-defined]
    if taken := sorted(name for name in names if name.lower() in _OWN):
        raise ValueError(f"column {', '.join(taken)} of the schema cannot be: rows have their own column of that name")
    return staged.select(
        *[F.col(f"_parsed.`{name}`") for name in names],
        *place,
        moment.alias("_event_time"),
        F.to_date(moment).alias("event_date"),
        reason.alias(REASON),
        F.col("key").alias("_key"),
        F.col("value").alias("_value"),
    )


def good(decoded: DataFrame) -> DataFrame:
    return decoded.where(f"{REASON} is null").drop(REASON, "_key", "_value")


def malformed(decoded: DataFrame) -> DataFrame:
    """Return the rows to quarantine: each record as it was, where it was, and why."""
    return decoded.where(f"{REASON} is not null").selectExpr(
        *[f"{name} as {name[1:]}" for name in PLACE], "_key as key", "_value as value", f"{REASON} as reason"
    )


def _parsed(text: Column, form: Format) -> Column:
    from pyspark.sql import functions as F

    if form.schema is None:
        raise ValueError(f"format {form.kind} needs a schema")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, **dict(form.options)}
    schema = f"{form.schema}, {CORRUPT} string"
    if form.kind == "json":
        return F.from_json(text, schema, options)
    return F.from_csv(text, schema, options)


def _why_corrupt(text: Column, kind: str) -> Column:
    from pyspark.sql import functions as F

    if kind == "csv":
        return F.lit("does not fit the schema")
    return F.when(F.try_parse_json(text).isNull(), "not JSON").otherwise("does not fit the schema")


def _moment(rows: DataFrame, column: str) -> Column:
    """A column of the parsed value as a timestamp; null where it cannot be one. ValueError when there is no such column."""
    from pyspark.sql import functions as F

    fields = {field.name: field.dataType.typeName() for field in rows.schema["_parsed"].dataType.fields}  # type: ignore[attr-defined]
    if column not in fields:
        there = ", ".join(name for name in fields if name != CORRUPT)
        raise ValueError(f"event time {column!r} is not a column of the schema; it has {there}")
    value, kind = F.col(f"_parsed.`{column}`"), fields[column]
    if kind in ("timestamp", "date"):
        return _in_range(value.cast("timestamp"))
    if kind in ("long", "integer"):
        return F.when(value.between(_FIRST_MS, _LAST_MS), F.timestamp_millis(F.when(value.between(_FIRST_MS, _LAST_MS), value)))
    if kind == "string":
        return _in_range(F.try_to_timestamp(value))
    raise ValueError(f"event time {column!r} is a {kind}; allowed are timestamp, date, string, and bigint for epoch milliseconds")


def _in_range(moment: Column) -> Column:
    """Null for years that a directory's name, a Parquet reader or Python cannot have."""
    from pyspark.sql import functions as F

    return F.when(F.unix_millis(moment).between(_FIRST_MS, _LAST_MS), moment)
