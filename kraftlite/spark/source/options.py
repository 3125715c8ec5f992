"""The options of the source: Spark's Kafka source is the model for names, precedence and what is refused.

Departs: an option that would have no effect (`maxOffsetsPerTrigger` in a batch query, a name that nobody knows) is refused, where
Spark ignores it.

Source: the Structured Streaming and Kafka integration guide.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraftlite.client.settings import ClientSettings
from kraftlite.model.limits import MAX_INT64
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.spark.kafka_options import client_settings
from kraftlite.spark.offsets import EARLIEST, LATEST, Offsets, from_json
from kraftlite.spark.segments import options as segment_options
from kraftlite.spark.segments.options import Files

STRATEGIES: Final = ("subscribe", "subscribepattern", "assign")
NAMES: Final = {
    name.lower(): name
    for name in (
        *("subscribe", "subscribePattern", "assign"),
        *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
        *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
        *("failOnDataLoss", "minPartitions", "maxRecordsPerPartition", "includeHeaders", "groupIdPrefix"),
        *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
        *("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs"),
        *("pushdown", "parser", "arrowBatchRows", "commitOffsets"),
        *segment_options.NAMES,
    )
}
BATCH_ONLY: Final = ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp", "pushdown")
STREAM_ONLY: Final = ("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "groupidprefix", "commitoffsets")
_FORBIDDEN: Final = {
    "auto.offset.reset": "set the option startingOffsets to earliest or latest; a query that resumes goes on where it stopped",
    "key.deserializer": "keys are always bytes; cast them in the query",
    "value.deserializer": "values are always bytes; cast them in the query",
    "enable.auto.commit": "what was read is committed with the query's progress",
    "interceptor.classes": "records are handed over as they are",
}
_UNITS_MS: Final = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DEFAULT_TRIGGER_DELAY_MS: Final = 15 * 60_000


@dataclass(frozen=True, slots=True)
class At:
    """A start or an end: a symbol for all, offsets per partition, one time, or a time per partition. Exactly one is set."""

    symbol: int | None = None
    offsets: Offsets | None = None
    timestamp_ms: int | None = None
    timestamps_ms: Offsets | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The checked options of a query. Raises ValueError, which names the option, its value and what is allowed."""

    settings: ClientSettings
    files: Files | None = None
    """The files that are read instead of asking brokers; then nobody is to connect with `settings`."""
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    starting: At
    ending: At
    no_match_is_latest: bool = False
    """True: a starting time behind the last record means the end of the partition. False: it is an error."""
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records: int | None = None
    include_headers: bool = False
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_trigger_delay_ms: int = _DEFAULT_TRIGGER_DELAY_MS
    group_id: str | None = None
    group_prefix: str = "kraftlite-spark"
    commit_offsets: bool = True
    pushdown: bool = False
    parser: str = "auto"
    batch_rows: int = 10_000
    offset_retries: int = 3
    offset_retry_ms: int = 1_000

    def matches(self, topic: str) -> bool:
        """A pattern is looked for anywhere in the name."""
        return topic in self.topics if self.pattern is None else re.search(self.pattern, topic) is not None


def parse(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Options by name in any case, as a data source gets them."""
    options = {name.lower(): value for name, value in given.items()}
    kafka = {name[6:]: value for name, value in options.items() if name.startswith("kafka.")}
    if "bootstrap.servers" in options:
        raise ValueError("option 'bootstrap.servers' is not known; use 'kafka.bootstrap.servers'")
    _refuse_unknown(options)
    _refuse_misplaced(options, streaming=streaming)
    files = segment_options.files_of(options, streaming=streaming)
    if files is not None:
        kafka = {**kafka, **segment_options.NO_BROKER}
        if not any(name in options for name in STRATEGIES):
            options["subscribepattern"] = ".*"
    for name, instead in _FORBIDDEN.items():
        if name in kafka:
            raise ValueError(f"Kafka option '{name}' is not supported: {instead}")
    if not kafka.get("bootstrap.servers", "").strip():
        raise ValueError("option 'kafka.bootstrap.servers' must be specified")
    starting = _at(options, "starting", LATEST if streaming else EARLIEST)
    ending = _at(options, "ending", LATEST)
    if not streaming:
        _check_batch_range(starting, ending)
    minimum, maximum = (_positive(options, name) for name in ("minoffsetspertrigger", "maxoffsetspertrigger"))
    if minimum is not None and maximum is not None and minimum > maximum:
        raise ValueError(f"minOffsetsPerTrigger is {minimum}, which is higher than maxOffsetsPerTrigger, {maximum}")
    if not _boolean(options, "commitoffsets", True):
        for name in ("kafka.group.id", "groupidprefix"):
            if name in options:
                raise ValueError(f"{NAMES.get(name, name)} is {options[name]!r} and commitOffsets is false, so no group is shown")
    no_match = options.get("startingoffsetsbytimestampstrategy", "error").lower()
    if no_match not in ("error", "latest"):
        raise ValueError(f"startingOffsetsByTimestampStrategy is {no_match!r}; allowed are error and latest")
    parser = options.get("parser", "auto").lower()
    if parser not in ("auto", "numpy", "numba"):
        raise ValueError(f"parser is {parser!r}; allowed are auto, numpy and numba")
    patience = _positive(options, "kafkaconsumer.polltimeoutms")
    if patience is not None:
        kafka.setdefault("default.api.timeout.ms", str(patience))
    return SourceOptions(
        settings=client_settings({name: it for name, it in kafka.items() if name != "group.id"}, reads=True),
        files=files,
        **_subscription(options),  # type: ignore[arg-type]
        starting=starting,
        ending=ending,
        no_match_is_latest=no_match == "latest",
        fail_on_data_loss=_boolean(options, "failondataloss", True),
        min_partitions=_positive(options, "minpartitions"),
        max_records=_positive(options, "maxrecordsperpartition"),
        include_headers=_boolean(options, "includeheaders", False),
        max_offsets=maximum,
        min_offsets=minimum,
        max_trigger_delay_ms=_duration_ms(options, "maxtriggerdelay", _DEFAULT_TRIGGER_DELAY_MS),
        group_id=kafka.get("group.id"),
        group_prefix=options.get("groupidprefix", "kraftlite-spark"),
        commit_offsets=_boolean(options, "commitoffsets", True),
        pushdown=_boolean(options, "pushdown", False),
        parser=parser,
        batch_rows=_positive(options, "arrowbatchrows") or 10_000,
        offset_retries=_positive(options, "fetchoffset.numretries") or 3,
        offset_retry_ms=_positive(options, "fetchoffset.retryintervalms") or 1_000,
    )


def _refuse_unknown(options: Mapping[str, str]) -> None:
    for name in options:
        if name in NAMES or name.startswith("kafka."):
            continue
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"; did you mean '{NAMES[near[0]]}'?" if near else "."
        raise ValueError(f"option '{name}' is not known{hint} Known are kafka.*, {', '.join(NAMES.values())}")


def _refuse_misplaced(options: Mapping[str, str], *, streaming: bool) -> None:
    for name in BATCH_ONLY if streaming else STREAM_ONLY:
        if name in options:
            kinds = ("batch", "streaming") if streaming else ("streaming", "batch")
            raise ValueError(f"option '{NAMES[name]}' is for {kinds[0]} queries; it is not valid in {kinds[1]} queries")


def _subscription(options: Mapping[str, str]) -> dict[str, object]:
    found = [name for name in STRATEGIES if name in options]
    names = ", ".join(NAMES[name] for name in STRATEGIES)
    if len(found) != 1:
        few = "One of the following options must" if not found else "Only one of the following options can"
        raise ValueError(f"{few} be specified for the source: {names}")
    value = options[found[0]]
    if found[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
        if not topics:
            raise ValueError(f"No topics to subscribe to: the value of option 'subscribe' is {value!r}")
        return {"topics": topics}
    if found[0] == "subscribepattern":
        if not value.strip():
            raise ValueError(f"Pattern to subscribe is empty: the value of option 'subscribePattern' is {value!r}")
        try:
            re.compile(value.strip())
        except re.error as error:
            raise ValueError(f"option 'subscribePattern' is {value!r}, which is not a regular expression: {error}") from None
        return {"pattern": value.strip()}
    assigned = _assigned(value)
    return {"assigned": assigned, "topics": tuple(dict.fromkeys(tp.topic for tp in assigned))}


def _assigned(value: str) -> tuple[TopicPartition, ...]:
    wrong = ValueError(
        f"No topicpartitions to assign: the value of option 'assign' is {value!r}; "
        'expected e.g. {"topicA":[0,1],"topicB":[0,1]}'
    )
    try:
        tree = json.loads(value)
    except json.JSONDecodeError:
        raise wrong from None
    if not isinstance(tree, dict) or not tree or not all(isinstance(it, list) for it in tree.values()):
        raise wrong
    if not all(isinstance(number, int) and not isinstance(number, bool) and number >= 0 for it in tree.values() for number in it):
        raise wrong
    found = tuple(sorted({TopicPartition(topic, number) for topic, numbers in tree.items() for number in numbers}))
    if not found:
        raise wrong
    return found


def _at(options: Mapping[str, str], which: str, default: int) -> At:
    """The time of all partitions comes first, then the times of each, then offsets."""
    timestamp = options.get(f"{which}timestamp")
    if timestamp is not None:
        try:
            found = int(timestamp.strip())
        except ValueError:
            found = -1
        if not 0 <= found <= MAX_INT64:
            raise ValueError(f"{which}Timestamp is {timestamp!r}; expected one time in milliseconds since the epoch")
        return At(timestamp_ms=found)
    times = options.get(f"{which}offsetsbytimestamp")
    if times is not None:
        of_each = from_json(times, f"{which}OffsetsByTimestamp")
        if not of_each or not all(0 <= it <= MAX_INT64 for it in of_each.values()):
            raise ValueError(f"{which}OffsetsByTimestamp is {times!r}; expected a time of 0 to {MAX_INT64} ms for each partition")
        return At(timestamps_ms=of_each)
    text = options.get(f"{which}offsets")
    if text is None:
        return At(symbol=default)
    if text.strip().lower() in ("earliest", "latest"):
        return At(symbol=EARLIEST if text.strip().lower() == "earliest" else LATEST)
    if not text.strip().startswith("{"):
        raise ValueError(
            f'{which}Offsets is {text!r}; allowed are earliest, latest and offsets like {{"topicA":{{"0":23,"1":-2}}}}'
        )
    offsets = from_json(text, f"{which}Offsets")
    if any(it < EARLIEST for it in offsets.values()):
        raise ValueError(f"{which}Offsets is {text!r}; below 0 there are -1 for latest and -2 for earliest")
    return At(offsets=offsets)


def _check_batch_range(starting: At, ending: At) -> None:
    if starting.symbol == LATEST:
        raise ValueError("startingOffsets: starting offset can't be latest for batch queries")
    if ending.symbol == EARLIEST:
        raise ValueError("endingOffsets: ending offset can't be earliest for batch queries")
    for at, symbol, what in ((starting, LATEST, "startingOffsets"), (ending, EARLIEST, "endingOffsets")):
        for tp, offset in (at.offsets or {}).items():
            if offset == symbol:
                word = "latest" if symbol == LATEST else "earliest"
                raise ValueError(f"{what} for {tp} can't be {word} for batch queries")
    if starting.timestamp_ms is not None and ending.timestamp_ms is not None and starting.timestamp_ms > ending.timestamp_ms:
        raise ValueError(
            f"startingTimestamp is {starting.timestamp_ms}, which is greater than endingTimestamp, {ending.timestamp_ms}"
        )
    for first, last, what in (
        (starting.offsets, ending.offsets, "Offsets"),
        (starting.timestamps_ms, ending.timestamps_ms, "OffsetsByTimestamp"),
    ):
        if first is None or last is None:
            continue
        if set(first) != set(last):
            odd = ", ".join(str(tp) for tp in sorted(set(first) ^ set(last)))
            raise ValueError(f"starting{what} and ending{what} must name the same partitions; only one names {odd}")
        for tp, start in first.items():
            if start > last[tp] >= 0:
                raise ValueError(f"starting{what} for {tp} is {start}, which is greater than its ending{what}, {last[tp]}")


def _boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    value = options.get(name)
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise ValueError(f"{NAMES[name]} is {value!r}; allowed are true and false")
    return value.lower() == "true"


def _positive(options: Mapping[str, str], name: str) -> int | None:
    value = options.get(name)
    if value is None:
        return None
    try:
        found = int(value)
    except ValueError:
        found = 0
    if found <= 0:
        raise ValueError(f"{NAMES[name]} is {value!r}; it must be a positive number")
    return found


def _duration_ms(options: Mapping[str, str], name: str, default: int) -> int:
    value = options.get(name)
    if value is None:
        return default
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", value.lower())
    if found is None or (found[2] and found[2] not in _UNITS_MS):
        raise ValueError(f"{NAMES[name]} is {value!r}; expected a time such as 15m, 30s or 500ms")
    return int(int(found[1]) * _UNITS_MS[found[2] or "ms"])
