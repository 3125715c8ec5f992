"""Every topic configuration key that Kafka has, and the check that guards changes of them.

Source: Kafka's topic configuration reference; docs/spec/defaults.md; CM-49, CM-52.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kraftlite.model.configdef import (
    Allowed,
    ConfigKey,
    ConfigType,
    at_least,
    between,
    by_name,
    each_of,
    either,
    one_of,
    protocol_message,
)
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import KIB, MAX_INT64, MIB

DAY_MS: Final = 24 * 3600 * 1000
_NEVER: Final = str(MAX_INT64)
_REPLICA: Final = re.compile("(?P<partition>[0-9]{1,10}):(?P<broker>[0-9]{1,10})")


def _key(
    name: str,
    kind: ConfigType,
    default: str,
    server_key: str | None,
    doc: str,
    allowed: Allowed | None = None,
) -> ConfigKey:
    return ConfigKey(
        name=name, type=kind, default=default, server_key=server_key, doc=doc, allowed=allowed, dynamic="cluster-wide"
    )


def throttled_replica(item: str) -> tuple[int, int] | None:
    """Partition and broker of an item of a list of throttled replicas; None for what it cannot be."""
    found = _REPLICA.fullmatch(item)
    return None if found is None else (int(found["partition"]), int(found["broker"]))


def _throttled(name: str) -> Allowed:
    return Allowed(
        lambda items: items == ("*",) or all(throttled_replica(item) is not None for item in items),
        "* or a list of partition:broker",
        lambda _: (
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        ),
        whole=True,
    )


_B, _I, _L, _D, _S, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.STRING,
    ConfigType.LIST,
)

TOPIC_CONFIGS: Final[Mapping[str, ConfigKey]] = by_name(
    [
        _key(
            "cleanup.policy",
            _LIST,
            "delete",
            "log.cleanup.policy",
            "What happens to old segments: deleted, compacted, or both.",
            each_of("compact", "delete", empty=True),
        ),
        _key(
            "compression.type",
            _S,
            "producer",
            "compression.type",
            "The codec in which the broker stores batches; producer keeps the producer's.",
            one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        ),
        _key("compression.gzip.level", _I, "-1", "compression.gzip.level", "The gzip level.", either(-1, between(1, 9))),
        _key("compression.lz4.level", _I, "9", "compression.lz4.level", "The lz4 level.", between(1, 17)),
        _key("compression.zstd.level", _I, "3", "compression.zstd.level", "The zstd level.", between(-131072, 22)),
        _key(
            "delete.retention.ms",
            _L,
            str(DAY_MS),
            "log.cleaner.delete.retention.ms",
            "How long tombstones stay in a compacted topic.",
            at_least(0),
        ),
        _key(
            "file.delete.delay.ms",
            _L,
            "60000",
            "log.segment.delete.delay.ms",
            "How long a deleted file stays on disk under its .deleted name.",
            at_least(0),
        ),
        _key(
            "flush.messages",
            _L,
            _NEVER,
            "log.flush.interval.messages",
            "Force the log to disk after so many records.",
            at_least(1),
        ),
        _key("flush.ms", _L, _NEVER, "log.flush.interval.ms", "Force the log to disk after so long.", at_least(0)),
        _key(
            "follower.replication.throttled.replicas",
            _LIST,
            "",
            None,
            "Replicas whose fetching is throttled.",
            _throttled("follower.replication.throttled.replicas"),
        ),
        _key(
            "index.interval.bytes",
            _I,
            "4096",
            "log.index.interval.bytes",
            "How many bytes of log one index entry stands for.",
            at_least(0),
        ),
        _key(
            "leader.replication.throttled.replicas",
            _LIST,
            "",
            None,
            "Replicas to whom the leader sends throttled.",
            _throttled("leader.replication.throttled.replicas"),
        ),
        _key(
            "local.retention.bytes",
            _L,
            "-2",
            "log.local.retention.bytes",
            "Bytes kept locally of a tiered topic; -2 follows retention.bytes.",
            at_least(-2),
        ),
        _key(
            "local.retention.ms",
            _L,
            "-2",
            "log.local.retention.ms",
            "Time kept locally of a tiered topic; -2 follows retention.ms.",
            at_least(-2),
        ),
        _key(
            "max.compaction.lag.ms",
            _L,
            _NEVER,
            "log.cleaner.max.compaction.lag.ms",
            "The longest that a record may stay uncompacted.",
            at_least(1),
        ),
        _key(
            "max.message.bytes",
            _I,
            str(MIB + 12),
            "message.max.bytes",
            "The largest record batch that is accepted.",
            at_least(0),
        ),
        _key(
            "message.timestamp.after.max.ms",
            _L,
            str(DAY_MS // 24),
            "log.message.timestamp.after.max.ms",
            "How far in the future a record's CreateTime may be.",
            at_least(0),
        ),
        _key(
            "message.timestamp.before.max.ms",
            _L,
            _NEVER,
            "log.message.timestamp.before.max.ms",
            "How far in the past a record's CreateTime may be.",
            at_least(0),
        ),
        _key(
            "message.timestamp.type",
            _S,
            "CreateTime",
            "log.message.timestamp.type",
            "Whose clock stamps a record: the producer's or the broker's.",
            one_of("CreateTime", "LogAppendTime"),
        ),
        _key(
            "min.cleanable.dirty.ratio",
            _D,
            "0.5",
            "log.cleaner.min.cleanable.ratio",
            "The dirty share of a log from which it is compacted.",
            between(0, 1),
        ),
        _key(
            "min.compaction.lag.ms",
            _L,
            "0",
            "log.cleaner.min.compaction.lag.ms",
            "The shortest time that a record stays uncompacted.",
            at_least(0),
        ),
        _key(
            "min.insync.replicas",
            _I,
            "1",
            "min.insync.replicas",
            "How large the ISR must be for a write with acks=all.",
            at_least(1),
        ),
        _key("preallocate", _B, "false", "log.preallocate", "Whether a new segment file is created at full size."),
        _key("remote.storage.enable", _B, "false", None, "Tiered storage, which is not supported."),
        _key("remote.log.copy.disable", _B, "false", None, "Tiered storage, which is not supported."),
        _key("remote.log.delete.on.disable", _B, "false", None, "Tiered storage, which is not supported."),
        _key(
            "retention.bytes",
            _L,
            "-1",
            "log.retention.bytes",
            "Bytes of a partition after which old segments are deleted; negative: no limit.",
        ),
        _key(
            "retention.ms",
            _L,
            str(7 * DAY_MS),
            "log.retention.ms",
            "Age after which segments are deleted; -1: no limit.",
            at_least(-1),
        ),
        _key("segment.bytes", _I, str(KIB * MIB), "log.segment.bytes", "Size at which a segment is rolled.", at_least(14)),
        _key(
            "segment.index.bytes",
            _I,
            str(10 * MIB),
            "log.index.size.max.bytes",
            "The largest size of an index file.",
            at_least(4),
        ),
        _key(
            "segment.jitter.ms",
            _L,
            "0",
            "log.roll.jitter.ms",
            "Random time taken off segment.ms, so that logs do not all roll at once.",
            at_least(0),
        ),
        _key("segment.ms", _L, str(7 * DAY_MS), "log.roll.ms", "Age at which a segment is rolled.", at_least(1)),
        _key(
            "unclean.leader.election.enable",
            _B,
            "false",
            "unclean.leader.election.enable",
            "Whether a replica out of the ISR may be elected when no other is left, losing records.",
        ),
    ]
)


_NO_VALUES: Final[Mapping[str, str]] = {}


def validate_topic_configs(values: Mapping[str, str], broker_values: Mapping[str, str] = _NO_VALUES) -> None:
    """Check a topic's overrides, one by one, and together with what the broker's configuration says. Raises
    ApiError(INVALID_CONFIG) at the first that is not allowed."""
    parsed: dict[str, Any] = {}
    for name, text in values.items():
        key = TOPIC_CONFIGS.get(name)
        if key is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
        try:
            parsed[name] = key.parse(text)
        except ValueError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, protocol_message(error)) from None

    def effective(name: str) -> Any:
        key = TOPIC_CONFIGS[name]
        return parsed[name] if name in parsed else key.parse(broker_values.get(key.server_key or "", key.default or ""))

    if effective("min.compaction.lag.ms") > effective("max.compaction.lag.ms"):
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({effective('min.compaction.lag.ms')}) > "
            f"max.compaction.lag.ms ({effective('max.compaction.lag.ms')})",
        )
    if parsed.get("remote.storage.enable"):
        raise ApiError(ErrorCode.INVALID_CONFIG, "remote.storage.enable=true: tiered storage is not supported; allowed is false")
