"""The metadata image: everything the committed metadata log says up to one offset, immutable.

Source: Kafka's MetadataImage; ML-01, ML-13, ML-15.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from kraftlite.metadata.features import METADATA_VERSION
from kraftlite.metadata.pmap import PMap
from kraftlite.metadata.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    MetadataRecord,
    ProducerIdsRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from kraftlite.metadata.registrations import BrokerRegistration, ControllerRegistration, PartitionRegistration
from kraftlite.model.ids import NO_NODE, Endpoint, NodeId
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.model.messages.security import (
    QuotaEntityPart,
)
from kraftlite.model.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataProvenance:
    """The place in the log where an image ends. Only an image that ends with a whole batch may become a metadata snapshot
    (ML-10)."""

    last_contained_offset: int
    """Inclusive; -1 for the image of nothing."""
    last_contained_epoch: int
    last_contained_log_time_ms: int
    is_offset_batch_aligned: bool

    EMPTY: ClassVar[MetadataProvenance]

    @property
    def snapshot_id(self) -> OffsetAndEpoch:
        """The id that a metadata snapshot of this image has: exclusive end offset, epoch of the last record."""
        return OffsetAndEpoch(self.last_contained_epoch, self.last_contained_offset + 1)


MetadataProvenance.EMPTY = MetadataProvenance(
    last_contained_offset=-1, last_contained_epoch=-1, last_contained_log_time_ms=-1, is_offset_batch_aligned=True
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturesImage:
    """Finalized feature levels, `metadata.version` among them."""

    finalized: PMap[str, int] = field(default_factory=PMap)

    EMPTY: ClassVar[FeaturesImage]

    @property
    def metadata_version(self) -> int | None:
        return self.finalized.get(METADATA_VERSION)

    def level(self, feature: str) -> int:
        """The finalized level; 0 for a feature that is not finalized."""
        return self.finalized.get(feature, 0)

    def write(self) -> Iterator[MetadataRecord]:
        """`metadata.version` first: it decides how all that follows is to be read."""
        if self.metadata_version is not None:
            yield FeatureLevelRecord(name=METADATA_VERSION, level=self.metadata_version)
        for name in sorted(self.finalized):
            if name != METADATA_VERSION:
                yield FeatureLevelRecord(name=name, level=self.finalized[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """Registered brokers and controllers, fenced ones included."""

    brokers: PMap[NodeId, BrokerRegistration] = field(default_factory=PMap)
    controllers: PMap[NodeId, ControllerRegistration] = field(default_factory=PMap)

    EMPTY: ClassVar[ClusterImage]

    def broker(self, broker_id: NodeId) -> BrokerRegistration | None:
        return self.brokers.get(broker_id)

    def is_alive(self, broker_id: NodeId) -> bool:
        """Return whether a broker is registered and not fenced."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def endpoint(self, broker_id: NodeId, listener: str) -> Endpoint | None:
        """Return the address of a broker's listener; None while it is not registered with one of that name."""
        broker = self.brokers.get(broker_id)
        found = None if broker is None else broker.listener(listener)
        return None if found is None else Endpoint(found.host, found.port)

    def write(self) -> Iterator[MetadataRecord]:
        for broker_id in sorted(self.brokers):
            yield self.brokers[broker_id].to_record()
        for controller_id in sorted(self.controllers):
            yield self.controllers[controller_id].to_record()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """One topic. `partitions` iterates in index order."""

    name: str
    topic_id: UUID
    partitions: PMap[int, PartitionRegistration] = field(default_factory=PMap)

    def write(self) -> Iterator[MetadataRecord]:
        yield TopicRecord(name=self.name, topic_id=self.topic_id)
        for index in sorted(self.partitions):
            yield self.partitions[index].to_record(self.topic_id, index)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsImage:
    """All topics, by id and by name; both maps always hold the same topics. `by_name` iterates in name order."""

    by_id: PMap[UUID, TopicImage] = field(default_factory=PMap)
    by_name: PMap[str, TopicImage] = field(default_factory=PMap, compare=False)

    EMPTY: ClassVar[TopicsImage]

    def topic(self, name: str) -> TopicImage | None:
        return self.by_name.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        return self.by_id.get(topic_id)

    def partition(self, topic_id: UUID, index: int) -> PartitionRegistration | None:
        topic = self.by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def registration(self, tp: TopicPartition) -> PartitionRegistration | None:
        """Return the partition of the topic that has the name now."""
        topic = self.by_name.get(tp.topic)
        return None if topic is None else topic.partitions.get(tp.partition)

    def __iter__(self) -> Iterator[TopicImage]:
        """Iterate in name order."""
        return (self.by_name[name] for name in self.by_name)

    def __len__(self) -> int:
        return len(self.by_id)

    def write(self) -> Iterator[MetadataRecord]:
        for topic in self:
            yield from topic.write()


_NO_CONFIGS: PMap[str, str] = PMap()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationsImage:
    """Dynamic configs by (resource type, resource name). A resource without configs has no entry.

    Types are `ConfigResourceType` numbers; the cluster-wide broker default is the broker named "".
    """

    resources: PMap[tuple[int, str], PMap[str, str]] = field(default_factory=PMap)

    EMPTY: ClassVar[ConfigurationsImage]

    def get(self, resource_type: int, name: str) -> PMap[str, str]:
        """The resource's own dynamic configs; empty when it has none."""
        return self.resources.get((resource_type, name), _NO_CONFIGS)

    def write(self) -> Iterator[MetadataRecord]:
        for resource_type, resource_name in sorted(self.resources):
            values = self.resources[resource_type, resource_name]
            for name in sorted(values):
                yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=values[name])


QuotaEntity = tuple[QuotaEntityPart, ...]
"""Whom a quota is for: its parts, sorted by type."""

_NO_QUOTAS: PMap[str, str] = PMap()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotasImage:
    """Quotas by entity, as texts by key. An entity without quotas has no entry."""

    entities: PMap[QuotaEntity, PMap[str, str]] = field(default_factory=PMap)

    EMPTY: ClassVar[ClientQuotasImage]

    def get(self, entity: QuotaEntity) -> PMap[str, str]:
        return self.entities.get(entity, _NO_QUOTAS)

    def write(self) -> Iterator[MetadataRecord]:
        for entity in self.entities:
            values = self.entities[entity]
            for key in sorted(values):
                yield ClientQuotaRecord(entity=entity, key=key, value=values[key])


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramImage:
    """SCRAM credentials by user and mechanism, as the records that set them."""

    credentials: PMap[tuple[str, int], UserScramCredentialRecord] = field(default_factory=PMap)

    EMPTY: ClassVar[ScramImage]

    def write(self) -> Iterator[MetadataRecord]:
        for key in self.credentials:
            yield self.credentials[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class AclsImage:
    """Access control entries by id, as the records that set them; `security/authorizer` decides by them."""

    entries: PMap[UUID, AccessControlEntryRecord] = field(default_factory=PMap)

    EMPTY: ClassVar[AclsImage]

    def write(self) -> Iterator[MetadataRecord]:
        for key in self.entries:
            yield self.entries[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokensImage:
    """Delegation tokens by id, as the records that issued them."""

    tokens: PMap[str, DelegationTokenRecord] = field(default_factory=PMap)

    EMPTY: ClassVar[DelegationTokensImage]

    def write(self) -> Iterator[MetadataRecord]:
        for key in self.tokens:
            yield self.tokens[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsImage:
    """All producer ids below `next_producer_id` have been handed out."""

    next_producer_id: int = 0

    EMPTY: ClassVar[ProducerIdsImage]

    def write(self) -> Iterator[MetadataRecord]:
        if self.next_producer_id > 0:
            yield ProducerIdsRecord(broker_id=NO_NODE, broker_epoch=-1, next_producer_id=self.next_producer_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """One consistent view. Immutable: a reader takes the reference once and works on it; sub-images that a delta did not
    touch are the same objects as before (ML-15)."""

    provenance: MetadataProvenance
    features: FeaturesImage
    cluster: ClusterImage
    topics: TopicsImage
    configs: ConfigurationsImage
    client_quotas: ClientQuotasImage
    scram: ScramImage
    producer_ids: ProducerIdsImage
    acls: AclsImage = field(default_factory=lambda: AclsImage.EMPTY)
    delegation_tokens: DelegationTokensImage = field(default_factory=lambda: DelegationTokensImage.EMPTY)

    EMPTY: ClassVar[MetadataImage]

    @property
    def offset(self) -> int:
        """The offset of the last record in the image; -1 for none."""
        return self.provenance.last_contained_offset

    def write(self) -> Iterator[MetadataRecord]:
        """The image as records; replaying them into an empty image gives an equal one (ML-13). Features come first."""
        yield from self.features.write()
        yield from self.cluster.write()
        yield from self.topics.write()
        yield from self.configs.write()
        yield from self.client_quotas.write()
        yield from self.scram.write()
        yield from self.producer_ids.write()
        yield from self.acls.write()
        yield from self.delegation_tokens.write()


FeaturesImage.EMPTY = FeaturesImage()
ClusterImage.EMPTY = ClusterImage()
TopicsImage.EMPTY = TopicsImage()
ConfigurationsImage.EMPTY = ConfigurationsImage()
ClientQuotasImage.EMPTY = ClientQuotasImage()
ScramImage.EMPTY = ScramImage()
ProducerIdsImage.EMPTY = ProducerIdsImage()
AclsImage.EMPTY = AclsImage()
DelegationTokensImage.EMPTY = DelegationTokensImage()
MetadataImage.EMPTY = MetadataImage(
    provenance=MetadataProvenance.EMPTY,
    features=FeaturesImage.EMPTY,
    cluster=ClusterImage.EMPTY,
    topics=TopicsImage.EMPTY,
    configs=ConfigurationsImage.EMPTY,
    client_quotas=ClientQuotasImage.EMPTY,
    scram=ScramImage.EMPTY,
    producer_ids=ProducerIdsImage.EMPTY,
    acls=AclsImage.EMPTY,
    delegation_tokens=DelegationTokensImage.EMPTY,
)
