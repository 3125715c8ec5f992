"""The metadata of a running local cluster: from the files of its nodes, up to the high watermark that its quorum tells.

What is behind the high watermark is not committed, and may never be: it is not shown. The cluster is asked one DescribeQuorum
for each look, and nothing registers with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kraftlite.client.errors import ClientError
from kraftlite.local.client import cluster_at, quorum_of
from kraftlite.local.process import RUNNING, STOPPED
from kraftlite.local.secure import admin_security
from kraftlite.local.state import LocalCluster, LocalError
from kraftlite.metadata.image import MetadataImage
from kraftlite.postmortem.files import METADATA_LOG, find
from kraftlite.postmortem.replay import MetadataAt, Replay

if TYPE_CHECKING:
    from kraftlite.client.cluster import ClusterClient


class Live:
    """The `State` of a metadata shell that looks at a running cluster. Raises LocalError when it does not answer."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        brokers = [node for node in cluster.nodes if node.kafka is not None]
        if all(node.state == STOPPED for node in brokers):
            raise LocalError(f"the cluster in {cluster.data_dir} does not answer (none of its brokers runs)")
        brokers.sort(key=lambda node: node.state != RUNNING)
        self._client: ClusterClient = cluster_at(",".join(str(node.kafka) for node in brokers), admin_security(cluster))
        self._travelled: MetadataImage | None = None
        try:
            self.metadata = self._look()
        except LocalError:
            self._client.close()
            raise
        self._replay: Replay = self.metadata.replay()

    @property
    def image(self) -> MetadataImage:
        return self._replay.image if self._travelled is None else self._travelled

    def refresh(self) -> None:
        """Read on up to the high watermark of now. While the quorum does not answer, what is known stays, with a note."""
        try:
            metadata = self._look()
        except LocalError as error:
            self.metadata.notes.add(f"{error}: shown is what was committed before", damage=False)
            return
        metadata.notes = self.metadata.notes
        self.metadata = metadata
        if metadata.files.segments and metadata.files.segments[0][0] > self._replay.next_offset:
            self._replay = metadata.replay()  # what was between has been deleted, for a snapshot that has it
            return
        for batch in metadata.batches(self._replay.next_offset):
            self._replay.feed(batch)

    def travel(self, offset: int | None) -> None:
        self._travelled = None if offset is None else self.metadata.at(offset)

    def close(self) -> None:
        self._client.close()

    def _look(self) -> MetadataAt:
        try:
            quorum = quorum_of(self._client)
        except ClientError as error:
            raise LocalError(f"the cluster in {self._cluster.data_dir} does not answer ({error})") from None
        leader = next((node for node in self._cluster.nodes if node.id == quorum["leader_id"]), None)
        if leader is None:
            raise LocalError(f"node {quorum['leader_id']}, which leads the quorum, is not one of {self._cluster.data_dir}")
        files = find([Path(leader.data_dir) / METADATA_LOG])[0]
        return MetadataAt(files, end=quorum["high_watermark"])
