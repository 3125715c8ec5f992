"""kafka-get-offsets. Source: TO-34; Kafka's GetOffsetShell."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence

import click

from kraftlite.broker.metadata_cache import INTERNAL_TOPICS
from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, cluster_of
from kraftlite.client.admin import list_offsets
from kraftlite.model.errors import ErrorCode

_TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
_PATTERN = re.compile(r"([^:,]*)(?::(?:([0-9]*)-([0-9]*)|([0-9]+)))?")


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-get-offsets", "An interactive shell for getting topic-partition offsets.")
    parser.connection()
    for name in ("topic-partitions", "topic", "partitions"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--time", default="latest")
    parser.add_argument("--exclude-internal-topics", action="store_true")
    options = parser.read(arguments)
    if options.topic_partitions and (options.topic or options.partitions):
        raise UsageError("--topic-partitions cannot be used with --topic or --partitions")
    timestamp = _time(options.time)
    chosen = _filter(options)
    cluster = cluster_of(options)
    leaders = {
        (topic, index): leader
        for (topic, index), leader in cluster.leaders().items()
        if chosen(topic, index) and not (options.exclude_internal_topics and topic in INTERNAL_TOPICS)
    }
    if not leaders:
        raise ToolError("Could not match any topic-partitions with the specified filters")
    found = list_offsets(cluster, dict.fromkeys(leaders, timestamp), leaders)
    for partition in sorted(leaders):
        code, offset, _timestamp = found[partition]
        topic, index = partition
        if code is ErrorCode.LEADER_NOT_AVAILABLE:
            click.echo(f"Skip getting offsets for topic-partition {topic}-{index} since it does not have a leader", err=True)
        elif code is not ErrorCode.NONE:
            click.echo(f"Skip getting offsets for topic-partition {topic}-{index} due to error: {code.name}", err=True)
        elif offset >= 0:
            click.echo(f"{topic}:{index}:{offset}")
    return 0


def _time(text: str) -> int:
    if text in _TIMES:
        return _TIMES[text]
    try:
        return int(text)
    except ValueError:
        raise ToolError(
            f"Malformed time argument {text}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp / -4 or "
            "earliest-local / -5 or latest-tiered / -6 or earliest-pending-upload, or a specified long format timestamp"
        ) from None


def _filter(options: argparse.Namespace) -> Callable[[str, int], bool]:
    if options.topic_partitions:
        rules = [_rule(item.strip()) for item in options.topic_partitions.split(",")]
        return lambda topic, index: any(rule(topic, index) for rule in rules)
    topics = _matcher(options.topic)
    numbers: set[int] | None = None
    if options.partitions:
        try:
            numbers = {int(one) for one in options.partitions.split(",")}
        except ValueError:
            raise ToolError(f"--partitions expects a list of numeric partition ids, but got: {options.partitions}") from None
    return lambda topic, index: topics(topic) and (numbers is None or index in numbers)


def _matcher(pattern: str | None) -> Callable[[str], bool]:
    if not pattern:
        return lambda _topic: True
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ToolError(f"{pattern} is not a regular expression: {error}") from None
    return lambda topic: compiled.fullmatch(topic) is not None


def _rule(text: str) -> Callable[[str, int], bool]:
    """`topic`, `topic:1`, `topic:1-3` (without 3), `topic:1-`, `topic:-3`, `:1`."""
    found = _PATTERN.fullmatch(text)
    if found is None:
        raise ToolError(f"Invalid rule specification: {text}")
    topics = _matcher(found[1])
    low = int(found[4] or found[2] or 0)
    high = int(found[4]) + 1 if found[4] else int(found[3]) if found[3] else None
    return lambda topic, index: topics(topic) and low <= index and (high is None or index < high)
