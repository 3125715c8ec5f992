"""Invariant 83: nobody leads in a directory that the controller knows to be offline."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.metadata.records import BrokerRegistrationChangeRecord, MetadataRecord, PartitionChangeRecord, PartitionRecord
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataState, in_online_directory
from kraftlite.sim.checkers.views import Entry


class OfflineLeaders(MetadataChecker):
    """And no replica is said to be in a directory of another broker. Looked at after each committed batch that changes partitions
    or what a broker has registered (JB-06, BL-20)."""

    numbers: ClassVar[tuple[int, ...]] = (83,)

    def on_commit(self, entry: Entry, before: MetadataState, after: MetadataState) -> None:
        records: list[MetadataRecord] = [record for _, record in self.facts.records(entry)]
        if any(isinstance(it, PartitionRecord | PartitionChangeRecord | BrokerRegistrationChangeRecord) for it in records):
            self._check(after)

    def _check(self, state: MetadataState) -> None:
        homes = {directory: broker_id for broker_id, it in state.brokers.items() for directory in it.log_dirs}
        for topic in state.topics.values():
            for index, partition in topic.partitions.items():
                leader = partition.leader
                if leader is not None and not in_online_directory(state, partition, leader):
                    directory = partition.directory_of(leader)
                    self.fail(f"{topic.name}-{index} is led by {leader} in directory {directory}, which is not online")
                for replica, directory in zip(partition.replicas, partition.directories, strict=False):
                    if homes.get(directory, replica) != replica:
                        where = f"{directory} of broker {homes[directory]}"
                        self.fail(f"metadata has the replica of {topic.name}-{index} on broker {replica} in directory {where}")
