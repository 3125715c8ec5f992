"""Registrations and credentials in the words of `kafka-metadata-shell`: `PartitionRegistration(replicas=[1, 2], …)`.

A value is a list of (field, text), from which come the line that `cat` prints and the differences that `history` and `diff` show.

Source: the `toString` of Kafka's PartitionRegistration, BrokerRegistration, ControllerRegistration and ScramCredentialData.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from uuid import UUID

from kraftlite.metadata.features import METADATA_VERSIONS
from kraftlite.metadata.image import MetadataProvenance
from kraftlite.metadata.records import AccessControlEntryRecord, DelegationTokenRecord, UserScramCredentialRecord
from kraftlite.metadata.registrations import BrokerRegistration, ControllerRegistration, PartitionRegistration
from kraftlite.model.ids import MIGRATING_DIR, uuid_to_str
from kraftlite.model.messages.controller import FeatureRange, ListenerInfo

Fields = Sequence[tuple[str, str]]
_RESOURCE_TYPES = ["UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"]
_PATTERN_TYPES = ["UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED"]
_OPERATIONS = [
    *["UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS"],
    *["ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"],
]
_PERMISSIONS = ["UNKNOWN", "ANY", "DENY", "ALLOW"]
_SIGN = 1 << 63
_MAX_SHORT = 2**15 - 1


def line(name: str, fields: Fields) -> str:
    """`Name(field=text, …)`."""
    return f"{name}({', '.join(f'{field}={text}' for field, text in fields)})"


def differences(before: Fields, after: Fields) -> list[str]:
    """`leader 1 → 2` for each field that changed, in the order of `after`."""
    old = dict(before)
    return [f"{field} {old.get(field, '-')} → {text}" for field, text in after if old.get(field) != text]


def partition(found: PartitionRegistration) -> Fields:
    directories = found.directories or (MIGRATING_DIR,) * len(found.replicas)
    return (
        ("replicas", _array(found.replicas)),
        ("directories", _array(map(uuid_to_str, directories))),
        ("isr", _array(found.isr)),
        ("removingReplicas", _array(found.removing_replicas)),
        ("addingReplicas", _array(found.adding_replicas)),
        ("elr", _array(found.elr)),
        ("lastKnownElr", _array(found.last_known_elr)),
        ("leader", str(-1 if found.leader is None else found.leader)),
        ("leaderRecoveryState", "RECOVERING" if found.recovering else "RECOVERED"),
        ("leaderEpoch", str(found.leader_epoch)),
        ("partitionEpoch", str(found.partition_epoch)),
    )


def broker(found: BrokerRegistration) -> Fields:
    cordoned = found.cordoned_log_dirs
    return (
        ("id", str(found.broker_id)),
        ("epoch", str(found.broker_epoch)),
        ("incarnationId", uuid_to_str(found.incarnation_id)),
        ("listeners", _listeners(found.listeners)),
        ("supportedFeatures", _features(found.features)),
        ("rack", "Optional.empty" if found.rack is None else f"Optional[{found.rack}]"),
        ("fenced", _boolean(found.fenced)),
        ("inControlledShutdown", _boolean(found.in_controlled_shutdown)),
        ("isMigratingZkBroker", _boolean(found.is_migrating_zk_broker)),
        ("directories", _array(map(uuid_to_str, sorted(found.log_dirs, key=_as_java_orders)))),
        ("cordonedDirectories", "null" if cordoned is None else _array(map(uuid_to_str, cordoned))),
    )


def controller(found: ControllerRegistration) -> Fields:
    return (
        ("id", str(found.controller_id)),
        ("incarnationId", uuid_to_str(found.incarnation_id)),
        ("zkMigrationReady", _boolean(found.zk_migration_ready)),
        ("listeners", _listeners(found.listeners)),
        ("supportedFeatures", _features(found.features)),
    )


def credential(found: UserScramCredentialRecord) -> Fields:
    return (
        ("salt", found.salt.hex()),
        ("storedKey", found.stored_key.hex()),
        ("serverKey", found.server_key.hex()),
        ("iterations", str(found.iterations)),
    )


def acl(found: AccessControlEntryRecord) -> Fields:
    return (
        ("resourceType", _named(_RESOURCE_TYPES, found.resource_type)),
        ("resourceName", found.resource_name),
        ("patternType", _named(_PATTERN_TYPES, found.pattern_type)),
        ("principal", found.principal),
        ("host", found.host),
        ("operation", _named(_OPERATIONS, found.operation)),
        ("permissionType", _named(_PERMISSIONS, found.permission_type)),
    )


def token(found: DelegationTokenRecord) -> Fields:
    return (
        ("tokenId", found.token_id),
        ("owner", found.owner),
        ("tokenRequester", found.requester),
        ("renewers", " ".join(found.renewers)),
        ("issueTimestamp", str(found.issue_timestamp_ms)),
        ("maxTimestamp", str(found.max_timestamp_ms)),
        ("expiryTimestamp", str(found.expiration_timestamp_ms)),
    )


def token_line(fields: Fields) -> str:
    """The parentheses are those of Kafka."""
    values = dict(fields)
    heads = "".join(f"({name}={values[name]}" for name in ("owner", "tokenRequester", "renewers"))
    times = f"issueTimestamp={values['issueTimestamp']}, maxTimestamp={values['maxTimestamp']})"
    return f"DelegationTokenDatatokenId={values['tokenId']}{heads}, {times}, expiryTimestamp={values['expiryTimestamp']}"


def provenance(found: MetadataProvenance) -> str:
    """`offset 17, epoch 3, time 2026-11-22T10:00:00.5Z[UTC]`."""
    time_ms = found.last_contained_log_time_ms
    try:
        moment = datetime.fromtimestamp(time_ms // 1000, UTC)
        fraction = f".{time_ms % 1000:03d}".rstrip("0").rstrip(".")
        time = f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z[UTC]"
    except (ValueError, OverflowError, OSError):
        time = f"{time_ms} ms since 1970"
    return f"offset {found.last_contained_offset}, epoch {found.last_contained_epoch}, time {time}"


def metadata_version(level: int | None) -> str:
    """An `Optional` of Java, with the name of the level."""
    if level is None:
        return "Optional.empty"
    known = METADATA_VERSIONS.get(level)
    return f"Optional[{level if known is None else known.name}]"


def in_java_order(names: Iterable[str]) -> list[str]:
    """Sorted as Java compares strings: by their UTF-16."""
    found = list(names)
    if all(map(str.isascii, found)):
        return sorted(found)
    return sorted(found, key=lambda name: name.encode("utf-16-be", "surrogatepass"))


def _named(names: Sequence[str], number: int) -> str:
    """Kafka's name of a number; what it does not know is UNKNOWN."""
    return names[number] if 0 <= number < len(names) else names[0]


def _array(values: Iterable[object]) -> str:
    return f"[{', '.join(map(str, values))}]"


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _listeners(listeners: Sequence[ListenerInfo]) -> str:
    by_name = {listener.name: listener for listener in listeners}
    return _array(_listener(by_name[name]) for name in in_java_order(by_name))


def _listener(found: ListenerInfo) -> str:
    fields = (f"listenerName='{found.name}'", f"securityProtocol={found.security_protocol}", f"host='{found.host}'")
    return f"Endpoint({', '.join(fields)}, port={found.port})"


def _features(features: Sequence[FeatureRange]) -> str:
    by_name = {feature.name: feature for feature in features}
    return f"{{{', '.join(f'{name}: {_range(by_name[name])}' for name in in_java_order(by_name))}}}"


def _range(found: FeatureRange) -> str:
    if found.min_level == found.max_level:
        return str(found.min_level)
    return f"{found.min_level}+" if found.max_level == _MAX_SHORT else f"{found.min_level}-{found.max_level}"


def _as_java_orders(value: UUID) -> tuple[int, int]:
    """Java compares the halves of an id as signed numbers."""
    high, low = value.int >> 64, value.int & (2**64 - 1)
    return high ^ _SIGN, low ^ _SIGN
