"""What `compare_connector` writes: columns, types, partitions, modes. Each format writes to a topic of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.spark.compare_reads import Case
from tests.spark.compare_sides import Outcome, World, attempt

QUICK: Final[Mapping[str, Mapping[str, str]]] = {
    "kafka": {"kafka.max.block.ms": "3000"},
    "kraftlite": {"kafka.delivery.timeout.ms": "3000", "kafka.default.api.timeout.ms": "3000"},
}


def write(
    name: str,
    select: str,
    *words: str,
    rows: int = 12,
    option: str | None = "{}",
    mode: str | None = "append",
    keyed: bool = True,
    partitions: int = 3,
    **options: Any,
) -> Case:
    """`select`: of `id`, with {} for the topic. `option`: the topic option. `keyed`: what has a key, or a partition, must be in
    the same partition; else only the records are compared. `partitions` 0: the topic is not made."""
    given = {key.replace("__", "."): it for key, it in options.items()}

    def run(world: World, form: str) -> Outcome:
        topic = f"write-{world.place().name}-{form}"
        if partitions:
            world.topic(topic, partitions)

        def save() -> Any:
            frame = world.spark.range(0, rows, 1, 2).selectExpr(*(it.strip().replace("{}", topic) for it in select.split(";")))
            writer = frame.write.format(form).option("kafka.bootstrap.servers", world.bootstrap).options(**given, **QUICK[form])
            writer = writer if option is None else writer.option("topic", option.replace("{}", topic))
            (writer if mode is None else writer.mode(mode)).save()
            return written(world, topic, keyed)

        return attempt(save, *words)

    return Case(f"write: {name}", run)


def headers(value: str) -> str:
    return f"'k' key; 'v' value; cast({value} as array<struct<key:string,value:binary>>) headers"


def written(world: World, topic: str, keyed: bool) -> list[str]:
    return sorted(repr(it if keyed else it[1:]) for it in world.consume(topic))


def stream(name: str, select: str, *words: str, mode: str = "append", option: str | None = "{}") -> Case:
    """From `plain` as a stream."""

    def run(world: World, form: str) -> Outcome:
        topic = world.topic(f"write-{world.place().name}-{form}", 3)

        def save() -> Any:
            source = {"kafka.bootstrap.servers": world.bootstrap, "subscribe": "plain", "startingOffsets": "earliest"}
            frame = world.spark.readStream.format(form).options(**source).load()
            if mode == "append":
                frame = frame.selectExpr(*(it.strip().replace("{}", topic) for it in select.split(";")))
            else:
                counts = ("cast(partition as string) key", "cast(count as string) value")
                frame = frame.groupBy("partition").count().selectExpr(*counts)
            writer = frame.writeStream.format(form).option("kafka.bootstrap.servers", world.bootstrap).outputMode(mode)
            writer = writer if option is None else writer.option("topic", option.replace("{}", topic))
            query = writer.option("checkpointLocation", str(world.place())).trigger(availableNow=True).start()
            query.awaitTermination()
            return written(world, topic, True)

        return attempt(save, *words)

    return Case(f"write: stream, {name}", run)


def cases() -> Iterator[Case]:
    yield from _columns()
    yield from _refused()
    value = "cast(id as string) value"
    yield write("keys", "cast(id as string) key; cast(id as string) value", rows=300, partitions=7)
    longer = "substr(unhex(sha2(cast(id as string), 512)), 1, int(id)) key"
    yield write("binary keys of every length", f"{longer}; unhex('00') value", rows=64)
    yield write("without keys", value, keyed=False)
    yield write("no rows", value, rows=0)
    for codec in ("gzip", "snappy", "lz4", "zstd", "none", "nonsense"):
        yield write(f"compression {codec}", f"'k' key; {value}", kafka__compression__type=codec)
    for acks in ("0", "1", "all", "-1", "2"):
        yield write(f"acks {acks}", f"'k' key; {value}", kafka__acks=acks)
    yield write("a record that is too large", "'k' key; repeat('x', 2000000) value", rows=1)
    for mode in (None, "append", "overwrite", "ignore", "errorifexists"):
        yield write(f"mode {mode}", f"'k' key; {value}", mode=mode)
    yield write("topic is not there", value, partitions=0)
    yield write("topic has a bad name", value, option="a b!", partitions=0)
    yield write("topic with spaces around", f"'k' key; {value}", option=" {} ")
    yield write("topic is empty", value, option="", partitions=0)
    yield stream("append", "key; value")
    yield stream("topic of the row", "'{}' topic; key; value", option=None)
    yield stream("no value", "key", "value")
    yield stream("complete", "", mode="complete")
    yield stream("update", "", mode="update")


def _columns() -> Iterator[Case]:
    yield write("value only, one key", "'k' key; cast(id as string) value")
    yield write("binary value", "'k' key; cast(cast(id as string) as binary) value")
    yield write("null values", "'k' key; if(id % 2 = 0, null, cast(id as string)) value")
    yield write("all values null", "'k' key; cast(null as string) value")
    yield write("empty values and keys", "'' key; '' value")
    yield write("null keys", "if(id % 2 = 0, null, 'k') key; cast(id as string) value", keyed=False)
    yield write("topic of the row", "'{}' topic; 'k' key; cast(id as string) value", option=None)
    yield write("topic option goes before the column", "'other' topic; 'k' key; cast(id as string) value")
    yield write("topic option, null column", "cast(null as string) topic; 'k' key; cast(id as string) value")
    yield write("null topic", "if(id = 5, null, '{}') topic; 'k' key; cast(id as string) value", "null topic", option=None)
    yield write("empty topic in a row", "'' topic; cast(id as string) value", option=None)
    yield write("topic with spaces in a row", "' {} ' topic; 'k' key; cast(id as string) value", option=None)
    yield write("partition", "int(id % 3) partition; cast(id as string) key; cast(id as string) value")
    yield write("partition, sometimes null", "if(id % 2 = 0, null, int(id % 3)) partition; 'k' key; cast(id as string) value")
    yield write("partition is negative", "-1 partition; 'k' key; cast(id as string) value", "partition")
    yield write("partition is too large", "3 partition; 'k' key; cast(id as string) value", "partition")
    yield write("headers", "'k' key; 'v' value; array(struct('a' key, unhex('01') value), struct('a' key, null value)) headers")
    yield write("null headers", headers("null"))
    yield write("empty headers", headers("array()"))
    yield write("header with null value", headers("array(struct('a' key, null value))"))
    yield write("header with null key", headers("array(struct(null key, unhex('00') value))"))
    yield write("header that is null", headers("array(null)"))
    yield write("other columns", "id; 'k' key; 'v' value; current_timestamp() timestamp; 5 offset")
    yield write("names in upper case", "'k' KEY; 'v' VALUE", "value")
    yield write("two columns of one name", "'k' key; 'v' value; 'w' value")


def _refused() -> Iterator[Case]:
    yield write("no value", "'k' key", "required attribute 'value' not found")
    yield write("no topic", "'v' value", "topic option required", option=None)
    unsupported = "attribute unsupported type"
    yield write("value is a number", "id value", "value", unsupported)
    yield write("key is a number", "id key; 'v' value", "key", unsupported)
    yield write("value is a struct", "struct(id) value", "value", unsupported)
    yield write("topic is a number", "id topic; 'v' value", "topic", unsupported, option=None)
    yield write("topic is a number, with the option", "id topic; 'k' key; 'v' value")
    yield write("topic is binary", "unhex('61') topic; 'v' value", "topic", unsupported, option=None)
    yield write("partition is long", "id partition; 'v' value", "partition", unsupported)
    yield write("partition is a string", "'0' partition; 'v' value", "partition", unsupported)
    yield write("headers are a map", "map('a', 'b') headers; 'v' value", "headers", unsupported)
    yield write("headers are of strings", "array(struct('a' key, 'b' value)) headers; 'v' value", "headers", unsupported)
    yield write("headers of other names", "array(struct('a' k, unhex('00') v)) headers; 'v' value", "headers", unsupported)
    yield write("headers are strings", "array('a') headers; 'v' value", "headers", unsupported)
    yield write("varchar", "cast('k' as varchar(5)) key; cast('v' as char(3)) value")
    yield write("void value", "null value", "value", unsupported)
