"""Records in a few words, for the trace. Values that may be secret are not among them (CM-51)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any
from uuid import UUID

from kraftlite.metadata.records import ConfigRecord, MetadataRecord, PartitionChangeRecord, PartitionRecord
from kraftlite.model.broker_configs import broker_key_of
from kraftlite.model.ids import UNCHANGED, uuid_to_str
from kraftlite.model.messages.controller import ConfigResourceType
from kraftlite.model.messages.security import QuotaEntityPart
from kraftlite.model.topic_configs import TOPIC_CONFIGS

_LEFT_OUT = frozenset(
    {
        *("topic_id", "partition", "directories", "listeners", "features", "log_dirs", "cordoned_log_dirs", "incarnation_id"),
        *("is_migrating_zk_broker", "zk_migration_ready"),
    }
)
_EMPTIED = frozenset({"isr", "elr"})
"""Sets that a change may leave without a member."""
_SECRET = frozenset({"salt", "stored_key", "server_key"})


def _text(value: Any) -> str:
    if isinstance(value, QuotaEntityPart):
        return f"{value.type}={'<default>' if value.name is None else value.name}"
    if isinstance(value, tuple):
        return "(" + ",".join(_text(item) for item in value) + ")"
    if isinstance(value, UUID):
        return uuid_to_str(value)
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def _is_secret(record: ConfigRecord) -> bool:
    """A key that nobody here knows may hold anything."""
    if record.resource_type in (ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS):
        return False
    topic = record.resource_type == ConfigResourceType.TOPIC
    key = TOPIC_CONFIGS.get(record.name) if topic else broker_key_of(record.name)
    return key is None or key.sensitive


def record_name(record: MetadataRecord) -> str:
    return type(record).__name__.removesuffix("Record")


def describe(record: MetadataRecord, topic_name: Callable[[UUID], str]) -> str:
    """`orders-0 isr=(1,2) leader=1`: what the record sets; identities that nobody reads are left out."""
    words = []
    if isinstance(record, PartitionRecord | PartitionChangeRecord):
        words.append(f"{topic_name(record.topic_id)}-{record.partition}")
    elif hasattr(record, "topic_id") and not hasattr(record, "name"):
        words.append(topic_name(record.topic_id))
    for field in fields(record):
        value = getattr(record, field.name)
        emptied = isinstance(record, PartitionChangeRecord) and field.name in _EMPTIED
        if field.name in _LEFT_OUT or field.name in _SECRET or value is UNCHANGED or (value == () and not emptied):
            continue
        if isinstance(record, PartitionRecord) and field.name == "recovering" and value is False:
            continue
        if field.name == "value" and value is not None and isinstance(record, ConfigRecord) and _is_secret(record):
            value = "[hidden]"
        words.append(f"{field.name}={_text(value)}")
    return " ".join(words)
