"""The metadata delta: records folded on top of an image, which then give the next image.

Source: Kafka's MetadataDelta; ML-12, ML-14, ML-15, ML-26.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from kraftlite.metadata.features import (
    KRAFT_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
    MIN_METADATA_VERSION,
)
from kraftlite.metadata.image import (
    AclsImage,
    ClientQuotasImage,
    ClusterImage,
    ConfigurationsImage,
    DelegationTokensImage,
    FeaturesImage,
    MetadataImage,
    MetadataProvenance,
    ProducerIdsImage,
    QuotaEntity,
    ScramImage,
)
from kraftlite.metadata.pmap import PMap
from kraftlite.metadata.records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from kraftlite.metadata.registrations import BrokerRegistration, ControllerRegistration
from kraftlite.metadata.topics_delta import LocalChanges, LocalPartition, TopicDelta, TopicsDelta
from kraftlite.model.errors import Fault
from kraftlite.model.ids import NodeId, uuid_to_str
from kraftlite.model.messages.controller import ConfigResourceType

__all__ = [
    "AclsDelta",
    "ClientQuotasDelta",
    "ClusterDelta",
    "ConfigsDelta",
    "DelegationTokensDelta",
    "FeaturesDelta",
    "LocalChanges",
    "LocalPartition",
    "MetadataDelta",
    "ProducerIdsDelta",
    "ScramDelta",
    "TopicDelta",
    "TopicsDelta",
]


class FeaturesDelta:
    """`changes`: feature to its new level, None for one that is removed."""

    def __init__(self, image: FeaturesImage) -> None:
        self.image = image
        self.changes: dict[str, int | None] = {}

    def replay(self, record: FeatureLevelRecord) -> None:
        """Raises Fault for a level of `metadata.version` that this software does not know (ML-26)."""
        if record.name == METADATA_VERSION and record.level not in METADATA_VERSIONS:
            raise Fault(
                f"the metadata log finalizes {METADATA_VERSION} at level {record.level}, which this software does not know: it "
                f"supports levels {MIN_METADATA_VERSION} to {LATEST_METADATA_VERSION}. Run software that supports level "
                f"{record.level}, or set {METADATA_VERSION} to a level of at least {MIN_METADATA_VERSION} and at most "
                f"{LATEST_METADATA_VERSION} with the software that wrote it (`features upgrade` or `downgrade`) first"
            )
        if record.name == KRAFT_VERSION:
            return  # finalized by control records of the quorum, inert here
        self.changes[record.name] = record.level or None

    def finish_snapshot(self) -> None:
        for name in self.image.finalized:
            self.changes.setdefault(name, None)
        self.changes = {name: level for name, level in self.changes.items() if self.image.finalized.get(name) != level}

    def apply(self) -> FeaturesImage:
        finalized = _apply(self.image.finalized, self.changes)
        return self.image if finalized is self.image.finalized else FeaturesImage(finalized=finalized)


class ClusterDelta:
    """`changed_brokers` and `changed_controllers`: id to the new registration, None for one that is gone."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.changed_brokers: dict[NodeId, BrokerRegistration | None] = {}
        self.changed_controllers: dict[NodeId, ControllerRegistration | None] = {}

    def broker(self, broker_id: NodeId) -> BrokerRegistration | None:
        """The broker as changed so far."""
        if broker_id in self.changed_brokers:
            return self.changed_brokers[broker_id]
        return self.image.broker(broker_id)

    def replay_register(self, record: RegisterBrokerRecord) -> None:
        self.changed_brokers[record.broker_id] = BrokerRegistration.from_record(record)

    def replay_unregister(self, record: UnregisterBrokerRecord) -> None:
        self._existing(record.broker_id, record.broker_epoch, "unregisters")
        self.changed_brokers[record.broker_id] = None

    def replay_change(self, record: BrokerRegistrationChangeRecord) -> None:
        before = self._existing(record.broker_id, record.broker_epoch, "changes")
        self.changed_brokers[record.broker_id] = before.merge(record)

    def replay_fenced(self, record: FenceBrokerRecord | UnfenceBrokerRecord) -> None:
        before = self._existing(record.broker_id, record.broker_epoch, "changes")
        self.changed_brokers[record.broker_id] = replace(before, fenced=isinstance(record, FenceBrokerRecord))

    def replay_controller(self, record: RegisterControllerRecord) -> None:
        self.changed_controllers[record.controller_id] = ControllerRegistration.from_record(record)

    def finish_snapshot(self) -> None:
        for broker_id in self.image.brokers:
            self.changed_brokers.setdefault(broker_id, None)
        for controller_id in self.image.controllers:
            self.changed_controllers.setdefault(controller_id, None)
        brokers, controllers = self.image.brokers, self.image.controllers
        self.changed_brokers = {key: now for key, now in self.changed_brokers.items() if brokers.get(key) != now}
        self.changed_controllers = {key: now for key, now in self.changed_controllers.items() if controllers.get(key) != now}

    def apply(self) -> ClusterImage:
        brokers = _apply(self.image.brokers, self.changed_brokers)
        controllers = _apply(self.image.controllers, self.changed_controllers)
        if brokers is self.image.brokers and controllers is self.image.controllers:
            return self.image
        return ClusterImage(brokers=brokers, controllers=controllers)

    def _existing(self, broker_id: NodeId, broker_epoch: int, verb: str) -> BrokerRegistration:
        found = self.broker(broker_id)
        if found is None:
            raise Fault(f"the metadata log {verb} broker {broker_id}, which is not registered")
        if found.broker_epoch != broker_epoch:
            raise Fault(
                f"the metadata log {verb} broker {broker_id} with epoch {broker_epoch}, but its epoch is {found.broker_epoch}"
            )
        return found


class ConfigsDelta:
    """`changes`: resource to its changed keys, with None for a key that is removed."""

    def __init__(self, image: ConfigurationsImage) -> None:
        self.image = image
        self.changes: dict[tuple[int, str], dict[str, str | None]] = {}

    @property
    def changed(self) -> tuple[tuple[int, str], ...]:
        """Every (resource type, resource name) with a change, in the order of the log."""
        return tuple(self.changes)

    def replay(self, record: ConfigRecord) -> None:
        self.changes.setdefault((record.resource_type, record.resource_name), {})[record.name] = record.value

    def replay_topic_removed(self, topic: str) -> None:
        """The configs of a removed topic go with it."""
        resource = (int(ConfigResourceType.TOPIC), topic)
        before = self.image.resources.get(resource)
        if before is not None:
            self.changes[resource] = dict.fromkeys(before)
        else:
            self.changes.pop(resource, None)

    def finish_snapshot(self) -> None:
        for resource, before in self.image.resources.items():
            changes = self.changes.setdefault(resource, {})
            for name in before:
                changes.setdefault(name, None)
        for resource, changes in list(self.changes.items()):
            before = self.image.get(*resource)
            left = {name: value for name, value in changes.items() if before.get(name) != value}
            if left:
                self.changes[resource] = left
            else:
                del self.changes[resource]

    def apply(self) -> ConfigurationsImage:
        changed: dict[tuple[int, str], PMap[str, str] | None] = {}
        for resource, changes in self.changes.items():
            before = self.image.get(*resource)
            after = _apply(before, changes)
            if after is not before:
                changed[resource] = after or None
        resources = _apply(self.image.resources, changed)
        return self.image if resources is self.image.resources else ConfigurationsImage(resources=resources)


class ClientQuotasDelta:
    """`changes`: entity to its changed keys, with None for a key that is removed."""

    def __init__(self, image: ClientQuotasImage) -> None:
        self.image = image
        self.changes: dict[QuotaEntity, dict[str, str | None]] = {}

    def replay(self, record: ClientQuotaRecord) -> None:
        self.changes.setdefault(record.entity, {})[record.key] = record.value

    def finish_snapshot(self) -> None:
        for entity, before in self.image.entities.items():
            changes = self.changes.setdefault(entity, {})
            for key in before:
                changes.setdefault(key, None)

    def apply(self) -> ClientQuotasImage:
        changed: dict[QuotaEntity, PMap[str, str] | None] = {}
        for entity, changes in self.changes.items():
            before = self.image.get(entity)
            after = _apply(before, changes)
            if after is not before:
                changed[entity] = after or None
        entities = _apply(self.image.entities, changed)
        return self.image if entities is self.image.entities else ClientQuotasImage(entities=entities)


class ScramDelta:
    """`changes`: (user, mechanism) to the new credential, None for one that is gone."""

    def __init__(self, image: ScramImage) -> None:
        self.image = image
        self.changes: dict[tuple[str, int], UserScramCredentialRecord | None] = {}

    def replay(self, record: UserScramCredentialRecord) -> None:
        self.changes[record.name, record.mechanism] = record

    def replay_removed(self, record: RemoveUserScramCredentialRecord) -> None:
        self.changes[record.name, record.mechanism] = None

    def finish_snapshot(self) -> None:
        for key in self.image.credentials:
            self.changes.setdefault(key, None)

    def apply(self) -> ScramImage:
        credentials = _apply(self.image.credentials, self.changes)
        return self.image if credentials is self.image.credentials else ScramImage(credentials=credentials)


class AclsDelta:
    """`changes`: id to the new access control entry, None for one that is gone."""

    def __init__(self, image: AclsImage) -> None:
        self.image = image
        self.changes: dict[UUID, AccessControlEntryRecord | None] = {}

    def replay(self, record: AccessControlEntryRecord) -> None:
        self.changes[record.id] = record

    def replay_removed(self, record: RemoveAccessControlEntryRecord) -> None:
        """Raises Fault for an entry that does not exist."""
        if self.changes.get(record.id, self.image.entries.get(record.id)) is None:
            raise Fault(f"the metadata log removes access control entry {uuid_to_str(record.id)}, which does not exist")
        self.changes[record.id] = None

    def finish_snapshot(self) -> None:
        for key in self.image.entries:
            self.changes.setdefault(key, None)

    def apply(self) -> AclsImage:
        entries = _apply(self.image.entries, self.changes)
        return self.image if entries is self.image.entries else AclsImage(entries=entries)


class DelegationTokensDelta:
    """`changes`: id to the new token, None for one that is gone."""

    def __init__(self, image: DelegationTokensImage) -> None:
        self.image = image
        self.changes: dict[str, DelegationTokenRecord | None] = {}

    def replay(self, record: DelegationTokenRecord) -> None:
        self.changes[record.token_id] = record

    def replay_removed(self, record: RemoveDelegationTokenRecord) -> None:
        self.changes[record.token_id] = None

    def finish_snapshot(self) -> None:
        for key in self.image.tokens:
            self.changes.setdefault(key, None)

    def apply(self) -> DelegationTokensImage:
        tokens = _apply(self.image.tokens, self.changes)
        return self.image if tokens is self.image.tokens else DelegationTokensImage(tokens=tokens)


class ProducerIdsDelta:
    """`next_producer_id` as changed so far; 0 when a metadata snapshot had none."""

    def __init__(self, image: ProducerIdsImage) -> None:
        self.image = image
        self.next_producer_id = image.next_producer_id
        self._seen = False

    def replay(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id
        self._seen = True

    def finish_snapshot(self) -> None:
        if not self._seen:
            self.next_producer_id = 0

    def apply(self) -> ProducerIdsImage:
        if self.next_producer_id == self.image.next_producer_id:
            return self.image
        return ProducerIdsImage(next_producer_id=self.next_producer_id)


class MetadataDelta:
    """Collects records on top of `image`; `apply` gives the next image. One writer, used once, never reverted.

    A sub-delta is None while no record touched its part. Transaction records are the loader's and not accepted here.
    Raises Fault for a record that does not fit the image: the log is then unreadable for this node.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.features: FeaturesDelta | None = None
        self.cluster: ClusterDelta | None = None
        self.topics: TopicsDelta | None = None
        self.configs: ConfigsDelta | None = None
        self.client_quotas: ClientQuotasDelta | None = None
        self.scram: ScramDelta | None = None
        self.producer_ids: ProducerIdsDelta | None = None
        self.acls: AclsDelta | None = None
        self.delegation_tokens: DelegationTokensDelta | None = None

    def replay(self, record: MetadataRecord, offset: int | None = None) -> None:
        """`offset`: where the record is in the log, for what it will be named as the cause of; None in a metadata snapshot."""
        if isinstance(record, PartitionRecord | PartitionChangeRecord):
            self.get_topics().replay_partition(record, offset)
            return
        if isinstance(record, ClearElrRecord):
            self.get_topics().replay_clear_elr(record, offset)
            return
        handler = _REPLAY.get(type(record))
        if handler is None:
            raise Fault(f"a {type(record).__name__} can not be part of a metadata image")
        handler(self, record)

    def finish_snapshot(self) -> None:
        """Called after all records of a metadata snapshot: whatever the image has and the snapshot had not is removed (ML-12)."""
        self.get_features().finish_snapshot()
        self.get_cluster().finish_snapshot()
        self.get_topics().finish_snapshot()
        self.get_configs().finish_snapshot()
        self.get_client_quotas().finish_snapshot()
        self.get_scram().finish_snapshot()
        self.get_producer_ids().finish_snapshot()
        self.get_acls().finish_snapshot()
        self.get_delegation_tokens().finish_snapshot()

    def apply(self, provenance: MetadataProvenance) -> MetadataImage:
        image = self.image
        return MetadataImage(
            provenance=provenance,
            features=image.features if self.features is None else self.features.apply(),
            cluster=image.cluster if self.cluster is None else self.cluster.apply(),
            topics=image.topics if self.topics is None else self.topics.apply(),
            configs=image.configs if self.configs is None else self.configs.apply(),
            client_quotas=image.client_quotas if self.client_quotas is None else self.client_quotas.apply(),
            scram=image.scram if self.scram is None else self.scram.apply(),
            producer_ids=image.producer_ids if self.producer_ids is None else self.producer_ids.apply(),
            acls=image.acls if self.acls is None else self.acls.apply(),
            delegation_tokens=image.delegation_tokens if self.delegation_tokens is None else self.delegation_tokens.apply(),
        )

    def get_features(self) -> FeaturesDelta:
        if self.features is None:
            self.features = FeaturesDelta(self.image.features)
        return self.features

    def get_cluster(self) -> ClusterDelta:
        if self.cluster is None:
            self.cluster = ClusterDelta(self.image.cluster)
        return self.cluster

    def get_topics(self) -> TopicsDelta:
        if self.topics is None:
            self.topics = TopicsDelta(self.image.topics)
        return self.topics

    def get_configs(self) -> ConfigsDelta:
        if self.configs is None:
            self.configs = ConfigsDelta(self.image.configs)
        return self.configs

    def get_client_quotas(self) -> ClientQuotasDelta:
        if self.client_quotas is None:
            self.client_quotas = ClientQuotasDelta(self.image.client_quotas)
        return self.client_quotas

    def get_scram(self) -> ScramDelta:
        if self.scram is None:
            self.scram = ScramDelta(self.image.scram)
        return self.scram

    def get_producer_ids(self) -> ProducerIdsDelta:
        if self.producer_ids is None:
            self.producer_ids = ProducerIdsDelta(self.image.producer_ids)
        return self.producer_ids

    def get_acls(self) -> AclsDelta:
        if self.acls is None:
            self.acls = AclsDelta(self.image.acls)
        return self.acls

    def get_delegation_tokens(self) -> DelegationTokensDelta:
        if self.delegation_tokens is None:
            self.delegation_tokens = DelegationTokensDelta(self.image.delegation_tokens)
        return self.delegation_tokens

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        name = self.get_topics().replay_remove(record)
        self.get_configs().replay_topic_removed(name)


def _nothing(delta: MetadataDelta, record: NoOpRecord | ZkMigrationStateRecord) -> None:
    return None


_REPLAY: Mapping[type[Any], Callable[[MetadataDelta, Any], None]] = {
    FeatureLevelRecord: lambda delta, record: delta.get_features().replay(record),
    RegisterBrokerRecord: lambda delta, record: delta.get_cluster().replay_register(record),
    UnregisterBrokerRecord: lambda delta, record: delta.get_cluster().replay_unregister(record),
    BrokerRegistrationChangeRecord: lambda delta, record: delta.get_cluster().replay_change(record),
    FenceBrokerRecord: lambda delta, record: delta.get_cluster().replay_fenced(record),
    UnfenceBrokerRecord: lambda delta, record: delta.get_cluster().replay_fenced(record),
    RegisterControllerRecord: lambda delta, record: delta.get_cluster().replay_controller(record),
    TopicRecord: lambda delta, record: delta.get_topics().replay_topic(record),
    RemoveTopicRecord: MetadataDelta._remove_topic,
    ClearElrRecord: lambda delta, record: delta.get_topics().replay_clear_elr(record),
    ConfigRecord: lambda delta, record: delta.get_configs().replay(record),
    ClientQuotaRecord: lambda delta, record: delta.get_client_quotas().replay(record),
    UserScramCredentialRecord: lambda delta, record: delta.get_scram().replay(record),
    RemoveUserScramCredentialRecord: lambda delta, record: delta.get_scram().replay_removed(record),
    ProducerIdsRecord: lambda delta, record: delta.get_producer_ids().replay(record),
    AccessControlEntryRecord: lambda delta, record: delta.get_acls().replay(record),
    RemoveAccessControlEntryRecord: lambda delta, record: delta.get_acls().replay_removed(record),
    DelegationTokenRecord: lambda delta, record: delta.get_delegation_tokens().replay(record),
    RemoveDelegationTokenRecord: lambda delta, record: delta.get_delegation_tokens().replay_removed(record),
    ZkMigrationStateRecord: _nothing,
    NoOpRecord: _nothing,
}


def _apply(before: PMap[Any, Any], changes: Mapping[Any, Any]) -> PMap[Any, Any]:
    """`before` with the changes that change something; None removes. `before` itself when there are none."""
    kept = {key: now for key, now in changes.items() if now is not None and before.get(key) != now}
    return before.update(kept, [key for key, now in changes.items() if now is None])
