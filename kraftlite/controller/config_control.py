"""Dynamic configuration in the metadata log.

Source: Kafka's ConfigurationControlManager; CM-47 to CM-52.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from kraftlite.controller.policies import Verdicts, pending
from kraftlite.controller.results import BoundedRecords, ControllerResult, all_or_nothing
from kraftlite.controller.turns import Steps
from kraftlite.metadata.records import ClearElrRecord, ConfigRecord, MetadataRecord
from kraftlite.model.broker_configs import BROKER_CONFIGS, broker_key_of, scaled, topic_synonyms
from kraftlite.model.config_effects import dynamic_refusal
from kraftlite.model.configdef import ConfigKey, ConfigSource, ConfigType, changed_list, protocol_message
from kraftlite.model.cordoned import CORDONED_DIRS
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.group_configs import (
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    validate_client_metrics_configs,
    validate_group_configs,
)
from kraftlite.model.ids import NodeId, node_id_of
from kraftlite.model.limits import MAX_STRING_BYTES
from kraftlite.model.messages.controller import (
    AlterConfigOp,
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterConfigsResult,
    ConfigChange,
    ConfigPair,
    ConfigResourceType,
    IncrementalAlterConfigsRequest,
    TopicConfigValue,
)
from kraftlite.model.policy import ConfigsToAlter
from kraftlite.model.topic_configs import TOPIC_CONFIGS, validate_topic_configs
from kraftlite.model.topic_name import validate_topic_name
from kraftlite.timeline.collections import TimelineMap
from kraftlite.timeline.registry import LATEST, TimelineRegistry

Resource = tuple[int, str]
"""(ConfigResourceType, name). The broker resource "" is the cluster-wide default."""

MIN_ISR: Final = "min.insync.replicas"

_TOPIC = ConfigResourceType.TOPIC.value
_BROKER = ConfigResourceType.BROKER.value
_GROUP = ConfigResourceType.GROUP.value
_CLIENT_METRICS = ConfigResourceType.CLIENT_METRICS.value


class ConfigControl:
    """The dynamic configs of each resource, as an immutable mapping that a change replaces."""

    def __init__(self, registry: TimelineRegistry, node_id: NodeId, static_broker_configs: Mapping[str, str]) -> None:
        self._node_id = node_id
        self._static = static_broker_configs
        self.configs: TimelineMap[Resource, Mapping[str, str]] = TimelineMap(registry)
        self.elr_enabled: Callable[[], bool] = lambda: False
        self.cordoning: Callable[[], bool] = lambda: True
        self.candidates: Callable[[str | None], list[MetadataRecord]] = lambda _topic: []
        """The records that give partitions of a topic (None: of all) back who may lead them, after the ELR was cleared."""
        self.topic_exists: Callable[[str], bool] = lambda _name: True
        self.node_exists: Callable[[NodeId], bool] = lambda _node_id: True

    def get(self, resource: Resource, epoch: int = LATEST) -> Mapping[str, str]:
        return self.configs.get(resource, epoch) or {}

    # --- effective values

    def effective_topic_value(self, topic: str, key: str) -> str:
        """Topic override > dynamic value of this node > dynamic cluster default > static > built-in (CM-49)."""
        override = self.get((_TOPIC, topic)).get(key)
        return override if override is not None else self.topic_default(key)[0]

    def topic_default(self, key: str) -> tuple[str, ConfigSource]:
        """Return the value that a topic without an override gets, and where it comes from."""
        layers = (
            (self.get((_BROKER, str(self._node_id))), ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.get((_BROKER, "")), ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self._static, ConfigSource.STATIC_BROKER_CONFIG),
        )
        default = TOPIC_CONFIGS[key].default or ""
        for values, source in layers:
            for server_key, factor in topic_synonyms(key):
                if server_key in values:
                    value = scaled(values[server_key], factor)
                    built_in = source is ConfigSource.STATIC_BROKER_CONFIG and value == default
                    return value, ConfigSource.DEFAULT_CONFIG if built_in else source
        return default, ConfigSource.DEFAULT_CONFIG

    def unclean_election_enabled(self, topic: str) -> bool:
        return self.effective_topic_value(topic, "unclean.leader.election.enable").strip().lower() == "true"

    def configured_min_isr(self, topic: str) -> int:
        """Return `min.insync.replicas`, which counts as the replication factor where it is larger."""
        return int(self.effective_topic_value(topic, MIN_ISR))

    def topic_defaults(self) -> tuple[TopicConfigValue, ...]:
        """The configs of a new topic without overrides, by name: the same for all topics of a request."""
        return tuple(_config_value(name, *self.topic_default(name)) for name in sorted(TOPIC_CONFIGS))

    @staticmethod
    def effective_for_new_topic(
        overrides: Mapping[str, str], defaults: tuple[TopicConfigValue, ...]
    ) -> tuple[TopicConfigValue, ...]:
        if not overrides:
            return defaults
        return tuple(
            _config_value(default.name, overrides[default.name], ConfigSource.TOPIC_CONFIG)
            if default.name in overrides
            else default
            for default in defaults
        )

    # --- operations

    def incremental_alter(
        self, request: IncrementalAlterConfigsRequest, verdicts: Verdicts | None = None
    ) -> Steps[ControllerResult[AlterConfigsResponse]]:
        """Each resource by itself: a bad key leaves its resource unchanged, the others proceed (CM-47). `verdicts`: of the
        policy, where there is one."""
        wanted = [
            ((it.resource_type, it.resource_name), partial(self._changes, changes=it.changes, verdicts=verdicts))
            for it in request.resources
        ]
        return self._alter(wanted, request.validate_only, verdicts)

    def legacy_alter(
        self, request: AlterConfigsRequest, verdicts: Verdicts | None = None
    ) -> Steps[ControllerResult[AlterConfigsResponse]]:
        """Replaces the whole set of each resource (CM-50)."""
        wanted = [
            ((it.resource_type, it.resource_name), partial(self._replacement, configs=it.configs, verdicts=verdicts))
            for it in request.resources
        ]
        return self._alter(wanted, request.validate_only, verdicts)

    def _alter(
        self,
        wanted: Sequence[tuple[Resource, Callable[[Resource], list[MetadataRecord]]]],
        validate_only: bool,
        verdicts: Verdicts | None,
    ) -> Steps[ControllerResult[AlterConfigsResponse]]:
        """Each resource with what finds its records, or raises ApiError."""
        records = BoundedRecords()
        results = []
        count = Counter(resource for resource, _ in wanted)
        for resource, found_for in wanted:
            yield
            try:
                self._check_once(resource, count)
                found = found_for(resource)
            except ApiError as error:
                results.append(_result(resource, error))
                continue
            records.extend(found)
            results.append(_result(resource, None))
        return self._finish(records, results, validate_only or pending(verdicts))

    def _finish(
        self, records: BoundedRecords, results: list[AlterConfigsResult], validate_only: bool
    ) -> ControllerResult[AlterConfigsResponse]:
        found = [*records, *self._elr_cleared_by(records)]
        result = all_or_nothing("Configs", found, AlterConfigsResponse(resources=tuple(results)))
        return result.without_records() if validate_only else result

    # --- eligible leader replicas (KIP-966)

    def elr_safety_records(self) -> list[MetadataRecord]:
        """Make all brokers agree on min.insync.replicas: one value for the cluster, of this node where there is none yet, and
        none for a single broker."""
        records: list[MetadataRecord] = [] if MIN_ISR in self.get((_BROKER, "")) else [self.first_min_isr()]
        for kind, name in sorted(self.configs):
            if kind == _BROKER and name != "" and MIN_ISR in self.get((kind, name)):
                records.append(ConfigRecord(resource_type=kind, resource_name=name, name=MIN_ISR, value=None))
        return records

    def first_min_isr(self) -> MetadataRecord:
        """The min.insync.replicas of a cluster that has none yet."""
        value = str(self._static.get(MIN_ISR, BROKER_CONFIGS[MIN_ISR].default))
        return ConfigRecord(resource_type=_BROKER, resource_name="", name=MIN_ISR, value=value)

    def clear_elr(self) -> list[MetadataRecord]:
        """Clear the sets of all partitions; see `candidates`."""
        return [ClearElrRecord(topic_name=""), *self.candidates(None)]

    def _elr_cleared_by(self, records: Iterable[MetadataRecord]) -> list[MetadataRecord]:
        """Clear the sets where the minimum changes: a replica that is eligible by one may not be by another. Where nobody is in
        the ISR the sets stay: nobody leads there, and no HW moves."""
        topics: dict[str | None, None] = {}
        for record in records if self.elr_enabled() else ():
            if isinstance(record, ConfigRecord) and record.name == MIN_ISR:
                topics[record.resource_name if record.resource_type == _TOPIC else None] = None
        cleared: list[MetadataRecord] = [ClearElrRecord(topic_name=topic or "") for topic in topics]
        return cleared + [record for topic in topics for record in self.candidates(topic)]

    def _check_elr(self, resource: Resource, wanted: Mapping[str, str | None]) -> None:
        """Raises ApiError(INVALID_CONFIG) for what would make brokers disagree on min.insync.replicas, worded as by Kafka, which
        refuses to take back what is not set, too."""
        if resource[0] != _BROKER or MIN_ISR not in wanted or not self.elr_enabled():
            return
        if resource[1] != "":
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.")
        if wanted[MIN_ISR] is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")

    # --- the changes of one resource

    def for_new_topic(self, topic: str, configs: Sequence[ConfigPair], verdicts: Verdicts | None = None) -> list[MetadataRecord]:
        """Records of a topic that is about to be created. Raises ApiError(INVALID_CONFIG) (CM-22)."""
        values: dict[str, str] = {}
        nulls = [pair.name for pair in configs if pair.value is None]
        if nulls:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {', '.join(nulls)}")
        for pair in configs:
            assert pair.value is not None
            values[pair.name] = pair.value
        validate_topic_configs(values, self._static)
        if verdicts is not None and values:
            verdicts.check(_question((_TOPIC, topic), values))
        return [
            ConfigRecord(resource_type=_TOPIC, resource_name=topic, name=name, value=value)
            for name, value in sorted(values.items())
        ]

    @staticmethod
    def _check_once(resource: Resource, count: Counter[Resource]) -> None:
        if count[resource] > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")

    @staticmethod
    def _check_name(resource: Resource) -> None:
        kind, name = resource
        if kind == _TOPIC:
            if name == "":
                raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        elif kind == _BROKER:
            if name != "" and node_id_of(name) is None:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
        elif kind == _GROUP:
            if name == "":
                raise ApiError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        elif kind == _CLIENT_METRICS:
            if name == "":
                raise ApiError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
        else:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unknown resource type {kind}",
            )

    def _check_exists(self, resource: Resource) -> None:
        """Only who sends good values is told that there is no such topic or broker, as by Kafka."""
        kind, name = resource
        if kind == _TOPIC and not self.topic_exists(name):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        if kind == _BROKER and (node_id := node_id_of(name)) is not None and not self.node_exists(node_id):
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {name} found.")

    def _changes(self, resource: Resource, changes: Sequence[ConfigChange], verdicts: Verdicts | None) -> list[MetadataRecord]:
        self._check_name(resource)
        names = [change.name for change in changes]
        if len(set(names)) < len(names):
            raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
        nulls = [change.name for change in changes if change.value is None and change.op != AlterConfigOp.DELETE]
        if nulls:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
        current = self.get(resource)
        wanted = {change.name: self._new_value(resource, change, current) for change in changes}
        records = self._records(resource, current, wanted)
        self._ask_policy(resource, records, wanted, verdicts)
        return records

    @staticmethod
    def _ask_policy(
        resource: Resource, records: Iterable[MetadataRecord], named: Collection[str], verdicts: Verdicts | None
    ) -> None:
        """Ask about what the request names and changes: what goes because a legacy request leaves it out is not asked about."""
        if verdicts is not None:
            changed = [it for it in records if isinstance(it, ConfigRecord) and it.name in named]
            verdicts.check(_question(resource, {it.name: it.value for it in changed}))

    def _replacement(self, resource: Resource, configs: Sequence[ConfigPair], verdicts: Verdicts | None) -> list[MetadataRecord]:
        self._check_name(resource)
        wanted: dict[str, str | None] = {}
        for pair in configs:
            if pair.name in wanted:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {pair.name}")
            if pair.value is None:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {pair.name}")
            wanted[pair.name] = pair.value
        current = self.get(resource)
        records = self._records(resource, current, {**dict.fromkeys(current), **wanted})
        self._ask_policy(resource, records, wanted, verdicts)
        return records

    def _new_value(self, resource: Resource, change: ConfigChange, current: Mapping[str, str]) -> str | None:
        if change.op == AlterConfigOp.DELETE:
            return None
        if change.op not in (AlterConfigOp.SET, AlterConfigOp.APPEND, AlterConfigOp.SUBTRACT):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown config operation {change.op}; allowed are 0, 1, 2 and 3.")
        assert change.value is not None
        if change.op == AlterConfigOp.SET:
            return change.value
        key = self._list_key(resource, change)
        return changed_list(current.get(change.name, key.default or ""), change.value, append=change.op == AlterConfigOp.APPEND)

    def _list_key(self, resource: Resource, change: ConfigChange) -> ConfigKey:
        """The key of a list. Raises ApiError(INVALID_CONFIG); Kafka has words of their own for keys of brokers."""
        key, operation = self._key(resource, change.name), AlterConfigOp(change.op).name
        if key is not None and key.type is ConfigType.LIST:
            return key
        if resource[0] != _BROKER:
            words = f"Can't {operation} to key {change.name} because its type is not LIST."
        elif key is None:
            words = f"Unknown config name: {change.name}"
        else:
            words = f"Config value {operation.lower()} is not allowed for config key: {change.name}"
        raise ApiError(ErrorCode.INVALID_CONFIG, words)

    @staticmethod
    def _key(resource: Resource, name: str) -> ConfigKey | None:
        if resource[0] == _BROKER:
            return broker_key_of(name)
        return {_TOPIC: TOPIC_CONFIGS, _GROUP: GROUP_CONFIGS, _CLIENT_METRICS: CLIENT_METRICS_CONFIGS}[resource[0]].get(name)

    def _records(self, resource: Resource, current: Mapping[str, str], wanted: Mapping[str, str | None]) -> list[MetadataRecord]:
        rewrites = resource[0] == _BROKER
        records: list[MetadataRecord] = []
        for name in sorted(wanted):
            value = wanted[name]
            if value != current.get(name) or (rewrites and value is not None):
                records.append(ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=name, value=value))
        self._check_elr(resource, wanted)
        self._check_sizes(wanted.values())
        # What other software left there, perhaps an older release, is not judged with what changes.
        after = {name: it for name, it in current.items() if name not in wanted and self._key(resource, name) is not None}
        after.update({name: value for name, value in wanted.items() if value is not None})
        if resource[0] == _TOPIC:
            validate_topic_name(resource[1])
            validate_topic_configs(after, self._static)
        elif resource[0] == _GROUP:
            validate_group_configs(after, self._static)
        elif resource[0] == _CLIENT_METRICS:
            validate_client_metrics_configs(after)
        else:
            if CORDONED_DIRS in wanted and not self.cordoning():
                raise ApiError(ErrorCode.INVALID_CONFIG, f"{CORDONED_DIRS} needs a metadata.version of at least 4.3-IV0.")
            self._validate_broker(resource, wanted)
        self._check_exists(resource)
        return records

    @staticmethod
    def _check_sizes(values: Iterable[str | None]) -> None:
        """A list that grows by appending may become longer than a record can hold."""
        if any(value is not None and len(value.encode()) > MAX_STRING_BYTES for value in values):
            limit = f"the maximum value size of {MAX_STRING_BYTES} bytes."
            raise ApiError(ErrorCode.INVALID_CONFIG, f"The configuration value cannot be added because it exceeds {limit}")

    @staticmethod
    def _validate_broker(resource: Resource, wanted: Mapping[str, str | None]) -> None:
        """Check what a broker's keys are set to. Keys that Kafka does not know belong to plug-ins and pass (CM-51), and any key
        may be taken back."""
        known = {name: key for name in sorted(wanted) if wanted[name] is not None and (key := broker_key_of(name)) is not None}
        if fixed := [name for name, key in known.items() if key.dynamic == "read-only"]:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
        own = [name for name, key in known.items() if key.dynamic == "per-broker" or name not in BROKER_CONFIGS]
        if resource[1] == "" and own:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs at default cluster level: [{', '.join(own)}]")
        for name, key in known.items():
            if (value := wanted[name]) is not None:
                try:
                    key.parse(value)
                except ValueError as error:
                    raise ApiError(ErrorCode.INVALID_REQUEST, protocol_message(error)) from None
        for name, value in wanted.items():
            if value is not None and (words := dynamic_refusal(name, value)) is not None:
                raise ApiError(ErrorCode.INVALID_CONFIG, words)

    # --- replay

    def replay(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        values = dict(self.get(resource))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            self.configs[resource] = values
        else:
            self.configs.pop(resource)

    def remove_topic(self, topic: str) -> None:
        """A removed topic's configs go with it (CM-23)."""
        self.configs.pop((_TOPIC, topic))


def _config_value(name: str, value: str, source: ConfigSource) -> TopicConfigValue:
    sensitive = TOPIC_CONFIGS[name].sensitive
    return TopicConfigValue(
        name=name, value=None if sensitive else value, read_only=False, source=int(source), is_sensitive=sensitive
    )


def _question(resource: Resource, configs: Mapping[str, str | None]) -> ConfigsToAlter:
    return ConfigsToAlter(resource_type=ConfigResourceType(resource[0]).name, resource_name=resource[1], configs=dict(configs))


def _result(resource: Resource, error: ApiError | None) -> AlterConfigsResult:
    return AlterConfigsResult(
        resource_type=resource[0],
        resource_name=resource[1],
        error=ErrorCode.NONE if error is None else error.code,
        message=None if error is None else error.message,
    )
