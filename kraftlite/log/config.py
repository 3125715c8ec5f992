"""The configuration of one log.

Source: Kafka topic configs and their defaults (docs/spec/defaults.md); names and numbers are interface facts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from kraftlite.log.scan import BOUND_TIMES, NEED_KEYS
from kraftlite.model.limits import MAX_BATCH_BYTES, MAX_INT64, MIB

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Typed topic configs; a field is called like its Kafka key with `_` for `.`, unless `_KEYS` says otherwise.

    Times in ms, sizes in bytes; -1 means unlimited for the retention values, as in Kafka. `min_insync_replicas` and
    `unclean_leader_election_enable` are carried for whoever owns the log; the log does not read them.
    """

    segment_bytes: int = 1024 * MIB
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * MIB
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    flush_messages: int = MAX_INT64
    flush_ms: int = MAX_INT64
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = DAY_MS
    cleanup_policy: tuple[str, ...] = ("delete",)
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_INT64
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = MAX_INT64
    message_timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    preallocate: bool = False
    producer_id_expiration_ms: int = DAY_MS
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    check_flags: int = field(init=False, repr=False, compare=False)
    """The flags for the scanner of a client's records (`log.scan`); derived, because each produce asks for them."""

    def __post_init__(self) -> None:
        flags = (NEED_KEYS if self.compacted else 0) | (0 if self.log_append_time else BOUND_TIMES)
        object.__setattr__(self, "check_flags", flags)

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Return whether old records are deleted."""
        return "delete" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """`segment.ms`, or less where records must not stay uncompacted for so long: only closed segments are compacted."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacted else self.segment_ms

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @classmethod
    def from_map(cls, values: Mapping[str, str]) -> LogConfig:
        """Make a config of Kafka's topic config keys (`segment.bytes`, …). Unknown keys are ignored, missing ones take the
        default. No batch may be larger than followers can be sent.

        Raises ValueError naming key, value and what is allowed.
        """
        known: dict[str, Any] = {}
        for key, (name, parse) in _KEYS.items():
            text = values.get(key)
            if text is None:
                continue
            try:
                known[name] = parse(text)
            except ValueError as error:
                raise ValueError(f"{key}={text!r}: {error}") from None
        found = cls(**known)
        return found if found.max_message_bytes <= MAX_BATCH_BYTES else replace(found, max_message_bytes=MAX_BATCH_BYTES)


def _integer(text: str) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise ValueError("expected an integer") from None


def _ratio(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError("expected a number in [0, 1]")
    return value


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("expected true or false")
    return lowered == "true"


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.strip() not in allowed:
            raise ValueError(f"expected one of {', '.join(allowed)}")
        return text.strip()

    return parse


def _policies(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if any(name not in ("delete", "compact") for name in names):
        raise ValueError("expected a comma-separated list of delete, compact")
    return names


_PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    "cleanup_policy": _policies,
    "min_cleanable_dirty_ratio": _ratio,
    "message_timestamp_type": _one_of("CreateTime", "LogAppendTime"),
    "compression_type": _one_of("producer", "uncompressed", "none", "gzip", "snappy", "lz4", "zstd"),
    "preallocate": _boolean,
    "unclean_leader_election_enable": _boolean,
}

_KEYS: Final = {f.name.replace("_", "."): (f.name, _PARSERS.get(f.name, _integer)) for f in fields(LogConfig) if f.init}
"""Kafka key -> (field, parser). `producer.id.expiration.ms` is a broker config in Kafka and reaches the log by the same map."""
