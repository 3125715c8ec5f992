"""From committed records to images: loading, publishing, metadata snapshots."""

from __future__ import annotations

from typing import Any

from kraftlite.broker.publisher import BrokerMetadataPublisher
from kraftlite.metadata.batch_loader import BatchLoader
from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.image import ProducerIdsImage
from kraftlite.metadata.loader import MetadataLoader
from kraftlite.metadata.registrations import PartitionRegistration
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import configured
from tests.sim.mutants.patching import Patch


@mutant("snapshot-forgets-deletions", "a topic that a metadata snapshot does not name stays", expects=("16", "liveness"))
def snapshot_forgets_deletions(patch: Patch) -> None:
    """KAFKA-14894: the loader did not call finishSnapshot after a snapshot that came on top of an image."""
    patch.edit(MetadataDelta, "finish_snapshot", ("self.get_topics().finish_snapshot()", "pass"))


@mutant("snapshot-without-producer-ids", "a metadata snapshot leaves out which producer ids were given", expects=("16", "23"))
def snapshot_without_producer_ids(patch: Patch) -> None:
    """State that was added to the controller and forgotten in the image's writer: the reason for Kafka's ImageWriter tests."""
    patch.edit(ProducerIdsImage, "write", ("if self.next_producer_id > 0:", "if False:"))


@mutant(
    "published-before-caught-up",
    "a node acts on the metadata that it has before it has what is committed",
    expects=("16",),
    lens=configured(metadata_log_max_record_bytes_between_snapshots="2000"),
)
def published_before_caught_up(patch: Patch) -> None:
    """ML-02: a broker that starts with a metadata snapshot sets the logs of topics aside that were made after it."""
    patch.edit(MetadataLoader, "_still_catching_up", (" or self.image.offset < high_watermark - 1", ""))


@mutant("delta-applied-twice", "the last batch is delivered again at a change of leader", expects=("16", "14", "crash"))
def delta_applied_twice(patch: Patch) -> None:
    """etcd v3.5 (etcd#13766): the index of what was applied was behind what had been applied, and entries were applied again."""

    def commit(original: Any, self: Any, batches: Any) -> None:
        self.last_delivered = batches
        original(self, batches)

    def change(original: Any, self: Any, leader: Any) -> None:
        original(self, leader)
        if getattr(self, "last_delivered", None):
            MetadataLoader.handle_commit(self, self.last_delivered[-1:])

    patch.around(MetadataLoader, "handle_commit", commit)
    patch.around(MetadataLoader, "handle_leader_change", change)


@mutant(
    "updates-lost-while-loading", "what comes while the first image is applied is not applied", expects=("31", "33", "liveness")
)
def updates_lost_while_loading(patch: Patch) -> None:
    """Recovery of the logs takes minutes, and the metadata goes on meanwhile: KAFKA-12998 put both on one thread for it."""
    rule = "self._replicas.start()"
    patch.edit(BrokerMetadataPublisher, "_first_publish", (rule, f"{rule}; self._waiting = deque([self._waiting[0]])"))


@mutant(
    "partition-epoch-not-raised",
    "a change of a partition leaves its epoch as it was",
    expects=("16", "21", "liveness", "SelfCheck"),
)
def partition_epoch_not_raised(patch: Patch) -> None:
    """KIP-497: the partition epoch is what ZooKeeper's version was. If it stays, a leader's compare-and-set compares nothing."""
    patch.edit(
        PartitionRegistration, "merge", ("partition_epoch=self.partition_epoch + 1,", "partition_epoch=self.partition_epoch,")
    )


@mutant("leader-epoch-not-raised", "a new leader leads in the old leader's epoch", expects=("16", "21", "28"))
def leader_epoch_not_raised(patch: Patch) -> None:
    """KIP-101. KAFKA-15021 discusses when the epoch may stay the same; with a new leader never."""
    rule = "leader, leader_epoch = change.leader, leader_epoch + 1"
    patch.edit(PartitionRegistration, "merge", (rule, "leader = change.leader"))


@mutant(
    "snapshot-of-an-earlier-epoch",
    "a metadata snapshot has the epoch in which its node has read its first record",
    expects=("11",),
    lens=configured(metadata_log_max_record_bytes_between_snapshots="1000"),
)
def snapshot_of_an_earlier_epoch(patch: Patch) -> None:
    """KIP-630: a follower that begins with the snapshot ends in that epoch, and its leader finds that their logs part there."""
    rule = "last_contained_epoch=self._epoch"
    patch.edit(BatchLoader, "_emit", (rule, "last_contained_epoch=max(self.image.provenance.last_contained_epoch, 1)"))
