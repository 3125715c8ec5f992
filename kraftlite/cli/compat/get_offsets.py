"""kafka-get-offsets. Source: TO-34; Kafka's GetOffsetShell."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from kraftlite.broker.metadata_cache import INTERNAL_TOPICS
from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, cluster_of, java_exception, java_int, java_long
from kraftlite.cli.compat.topic_filter import comma_list, topic_pattern
from kraftlite.client.admin import list_offsets
from kraftlite.model.errors import ErrorCode
from kraftlite.model.shown import shown

if TYPE_CHECKING:
    from kraftlite.client.cluster import ClusterClient

_TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
_PATTERN = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
Chosen = Callable[[str, int], bool]


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-get-offsets", "An interactive shell for getting topic-partition offsets.")
    parser.connection()
    for name in ("topic-partitions", "topic", "partitions"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--time", default="latest")
    parser.add_argument("--exclude-internal-topics", action="store_true")
    options = parser.read(arguments)
    if options.topic_partitions is not None and (options.topic is not None or options.partitions is not None):
        raise UsageError("--topic-partitions cannot be used with --topic or --partitions")
    timestamp = _time(options.time)
    rule = chosen(options)
    show(cluster_of(options), rule, timestamp, internal=not options.exclude_internal_topics)
    return 0


def show(cluster: ClusterClient, rule: Chosen, timestamp: int, *, internal: bool) -> None:
    """Print the offsets of these partitions at a time, in the order of their names as text. Raises ToolError."""
    leaders = {
        (topic, index): leader
        for (topic, index), leader in cluster.leaders().items()
        if rule(topic, index) and (internal or topic not in INTERNAL_TOPICS)
    }
    if not leaders:
        raise ToolError("Could not match any topic-partitions with the specified filters")
    found = list_offsets(cluster, dict.fromkeys(leaders, timestamp), leaders)
    names = {f"{topic}-{index}": (topic, index) for topic, index in leaders}
    for name, (topic, index) in sorted(names.items()):
        code, offset, _timestamp = found[topic, index]
        if code is ErrorCode.LEADER_NOT_AVAILABLE:
            click.echo(f"Skip getting offsets for topic-partition {name} since it does not have a leader", err=True)
        elif code is not ErrorCode.NONE:
            click.echo(f"Skip getting offsets for topic-partition {name} due to error: {java_exception(code)}", err=True)
        elif offset >= 0:
            click.echo(f"{topic}:{index}:{offset}")


def _time(text: str) -> int:
    if text in _TIMES:
        return _TIMES[text]
    value = java_long(text)
    if value is None:
        raise ToolError(
            f"Malformed time argument {shown(text)}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp / -4 or "
            "earliest-local / -5 or latest-tiered / -6 or earliest-pending-upload, or a specified long format timestamp"
        )
    return value


def chosen(options: argparse.Namespace) -> Chosen:
    """Return the rule that says which partitions are meant. Raises ToolError."""
    if options.topic_partitions is not None:
        rules = [_rule(item) for item in comma_list(options.topic_partitions)]
        return lambda topic, index: any(rule(topic, index) for rule in rules)
    topics = topic_pattern(".*" if options.topic is None else options.topic)
    numbers = {java_int(one) for one in comma_list(options.partitions)} if options.partitions else set()
    if None in numbers:
        raise ToolError(
            f"--partitions expects a comma separated list of numeric partition ids, but received: {shown(options.partitions)}"
        )
    return lambda topic, index: topics.fullmatch(topic) is not None and (not numbers or index in numbers)


def _rule(text: str) -> Chosen:
    """`topic`, `topic:1`, `topic:1-3` (without 3), `topic:1-`, `topic:-3`, `:1`."""
    found = _PATTERN.fullmatch(text)
    if found is None:
        raise ToolError(f"Invalid rule specification: {text}")
    topics = topic_pattern(found[1] or ".*")
    one, low, high = (_partition(part) if part else None for part in found.groups()[1:])
    if one is not None:
        low, high = one, one + 1
    return lambda topic, index: topics.fullmatch(topic) is not None and (low or 0) <= index and (high is None or index < high)


def _partition(text: str) -> int:
    value = java_int(text)
    if value is None:
        raise ToolError(f'For input string: "{shown(text)}"')
    return value
