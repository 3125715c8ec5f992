"""The hard state of the controller: all control managers over one timeline registry, and the replay switch.

Source: the replay of Kafka's QuorumController.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

from kraftlite.controller.acl_control import AclControl
from kraftlite.controller.broker_control import BrokerControl
from kraftlite.controller.cluster_control import ClusterControl
from kraftlite.controller.config import ControllerConfig
from kraftlite.controller.config_control import ConfigControl
from kraftlite.controller.directory_control import DirectoryControl
from kraftlite.controller.election_control import ElectionControl
from kraftlite.controller.feature_control import FeatureControl
from kraftlite.controller.isr_control import IsrControl
from kraftlite.controller.offset_control import OffsetControl
from kraftlite.controller.producer_id_control import ProducerIdControl
from kraftlite.controller.quota_control import QuotaControl
from kraftlite.controller.reassignment_control import ReassignmentControl
from kraftlite.controller.scram_control import ScramControl
from kraftlite.controller.token_control import TokenControl
from kraftlite.controller.topic_control import TopicControl
from kraftlite.controller.topics_state import TopicsState
from kraftlite.metadata import records as r
from kraftlite.metadata.features import supports_cordoning
from kraftlite.model.ids import uuid_to_str
from kraftlite.runtime.ports import Tracer
from kraftlite.timeline.collections import TimelineValue
from kraftlite.timeline.registry import TimelineRegistry


class ControllerState:
    """Composition of the control managers. `replay` is the only way in which it changes."""

    def __init__(self, config: ControllerConfig, rng: random.Random, tracer: Tracer) -> None:
        self.registry = TimelineRegistry()
        self.offsets = OffsetControl(self.registry)
        self.features = FeatureControl(self.registry, config.supported_features, config.quorum_voters, config.node_id)
        self.cluster = ClusterControl(self.registry, config.cluster_id, config.session_timeout_ms, self.features)
        self.configs = ConfigControl(self.registry, config.node_id, config.static_broker_configs)
        self.replication = TopicsState(self.registry, self.configs)
        self.producer_ids = ProducerIdControl(self.registry, self.cluster, config.tuning.producer_id_block)
        self.elections = ElectionControl(
            self.replication, self.cluster, self.configs, self.features, config.max_elections_per_run
        )
        self.quotas = QuotaControl(self.registry)
        self.scram = ScramControl(self.registry, self.features)
        self.tokens = TokenControl(self.registry, self.features, config.token_times, config.token_secret, rng)
        self.acls = AclControl(self.registry, rng, enforced=config.has_authorizer)
        self.reassignments = ReassignmentControl(self.replication, self.cluster, self.configs, self.elections)
        self.isr = IsrControl(self.replication, self.cluster, self.configs, self.elections)
        self.directories = DirectoryControl(self.replication, self.cluster, self.configs, self.features, self.elections)
        self.topics = TopicControl(config, self.replication, self.cluster, self.configs, self.features, rng)
        self.brokers = BrokerControl(self.cluster, self.replication, self.elections, tracer, config.tuning)
        self._has_records: TimelineValue[bool] = TimelineValue(self.registry, False)
        self.features.brokers = lambda: [(b.broker_id, b.features) for b in self.cluster.brokers.values()]
        self.features.controllers = lambda: [(c.controller_id, c.features) for c in self.cluster.controllers.values()]
        self.features.before_elr = self.configs.elr_safety_records
        self.features.clear_elr = lambda: self.configs.clear_elr() if self.replication.has_elr else []
        self.configs.elr_enabled = lambda: self.features.elr_enabled
        self.configs.cordoning = lambda: supports_cordoning(self.features.level_or_minimum())
        self.configs.candidates = self.replication.candidates
        self.configs.topic_exists = lambda name: name in self.replication.topic_ids
        self.configs.node_exists = lambda node_id: node_id in self.cluster.brokers or node_id in self.cluster.controllers
        self._replayers = self._build_replayers()

    def _build_replayers(self) -> dict[type[Any], Callable[[Any, int], None]]:
        def plain(function: Callable[[Any], None]) -> Callable[[Any, int], None]:
            return lambda record, _offset: function(record)

        return {
            r.PartitionRecord: plain(self.replication.replay_partition),
            r.PartitionChangeRecord: plain(self.replication.replay_partition_change),
            r.ClearElrRecord: plain(self.replication.replay_clear_elr),
            r.TopicRecord: plain(self.replication.replay_topic),
            r.RemoveTopicRecord: plain(self.replication.replay_remove_topic),
            r.ConfigRecord: plain(self.configs.replay),
            r.FeatureLevelRecord: plain(self.features.replay),
            r.RegisterBrokerRecord: self.cluster.replay_register_broker,
            r.UnregisterBrokerRecord: plain(self.cluster.replay_unregister_broker),
            r.BrokerRegistrationChangeRecord: plain(self.cluster.replay_registration_change),
            r.RegisterControllerRecord: plain(self.cluster.replay_register_controller),
            r.ClientQuotaRecord: plain(self.quotas.replay),
            r.UserScramCredentialRecord: plain(self.scram.replay),
            r.RemoveUserScramCredentialRecord: plain(self.scram.replay_removed),
            r.ProducerIdsRecord: plain(self.producer_ids.replay),
            r.FenceBrokerRecord: plain(self.cluster.replay_fenced),
            r.UnfenceBrokerRecord: plain(self.cluster.replay_fenced),
            r.AccessControlEntryRecord: plain(self.acls.replay),
            r.RemoveAccessControlEntryRecord: plain(self.acls.replay_removed),
            r.DelegationTokenRecord: plain(self.tokens.replay),
            r.RemoveDelegationTokenRecord: plain(self.tokens.replay_removed),
            # Kept in the image, and so in every snapshot; it changes nothing that a controller decides.
            r.ZkMigrationStateRecord: plain(lambda _record: None),
            r.NoOpRecord: plain(lambda _record: None),
            r.BeginTransactionRecord: self.offsets.replay_begin,
            r.EndTransactionRecord: self.offsets.replay_end,
            r.AbortTransactionRecord: self.offsets.replay_abort,
        }

    @property
    def has_records(self) -> bool:
        """Return whether anything was ever replayed (an aborted transaction does not count)."""
        return self._has_records.get()

    def had_records_before(self, offset: int) -> bool:
        """Return what `has_records` was just before the transaction that begins at `offset`."""
        epoch = self.registry.floor(offset - 1)
        return self._has_records.get() if epoch is None else self._has_records.get(epoch)

    def replay(self, record: r.MetadataRecord, offset: int) -> None:
        """Raises ValueError (and the like) when the record cannot be applied: that node must not go on."""
        replayer = self._replayers.get(type(record))
        if replayer is None:
            raise ValueError(f"unknown record type {type(record).__name__}")
        if isinstance(record, r.AbortTransactionRecord):
            # It brings back, with everything else, whether there was anything before the transaction.
            replayer(record, offset)
            return
        replayer(record, offset)
        if not self._has_records.get():
            self._has_records.set(True)

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold between two events. Looks at everything: for tests and
        simulations.

        Whoever leads is active, and so is every member of an ISR but the last one, who may come back with all there is.
        """
        self.cluster.check()
        self.replication.check()
        active, may_lead = self.cluster.is_active, self.cluster.may_lead
        for info in self.replication.topics.values():
            for index, partition in info.partitions.items():
                leader, isr = partition.leader, partition.isr
                assert leader is None or may_lead(leader), (
                    f"{info.name}-{index} is led by {leader}, who is not active or is leaving"
                )
                gone = [member for member in isr if not active(member)]
                assert len(isr) == 1 or not gone, f"{info.name}-{index} has the ISR {isr}, of which {gone} are not active"

    def reset(self) -> None:
        self.registry.reset()

    def topic_name(self, topic_id: UUID) -> str:
        info = self.replication.topics.get(topic_id)
        return uuid_to_str(topic_id) if info is None else info.name

    def dump(self) -> dict[str, Any]:
        """Everything hard, in a canonical order: equal dumps are equal states."""
        topics = {}
        for name in sorted(self.replication.topic_ids):
            info = self.replication.topic(name)
            assert info is not None
            topics[name] = (info.topic_id, sorted(info.partitions.items(), key=lambda item: item[0]))
        configs = self.configs.configs
        return {
            "features": sorted(self.features.finalized.items()),
            "brokers": sorted(self.cluster.brokers.items(), key=lambda item: item[0]),
            "registration_offsets": sorted(self.cluster.registration_offsets.items()),
            "controllers": sorted(self.cluster.controllers.items(), key=lambda item: item[0]),
            "directories": sorted(self.cluster.directory_owners.items()),
            "topics": topics,
            "configs": [(resource, sorted(configs[resource].items())) for resource in sorted(configs)],
            "client_quotas": [(entity, sorted(self.quotas.quotas[entity].items())) for entity in sorted(self.quotas.quotas)],
            "scram": sorted(self.scram.credentials.items()),
            "tokens": sorted(self.tokens.tokens.items()),
            "acls": sorted(self.acls.entries.items()),
            "next_producer_id": self.producer_ids.next_producer_id.get(),
            "transaction_start": self.offsets.transaction_start_offset,
        }

    def hash(self) -> str:
        return hashlib.sha256(repr(self.dump()).encode()).hexdigest()
