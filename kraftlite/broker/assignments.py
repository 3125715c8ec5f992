"""Telling the controller in which log directory each replica is: what waits, what is with the controller, what has become void.

Source: KIP-858; Kafka's AssignmentsManager; JB-05, BL-19.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from kraftlite.metadata.image import MetadataImage
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    ReplicaDirectory,
)

MAX_PER_REQUEST: Final = 2_250
"""Replicas in one request, as in Kafka."""
_VOID: Final = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""The controller knows of no such replica: there is nothing to say of it."""

Key = tuple[UUID, int]
TakenBack = Callable[[UUID, int], tuple[UUID, ...]]
"""Tells the directories that were named for a replica and are not to count, the last one first."""


class Assignments:
    """One request at a time; of each replica the newest wish counts. Synchronous.

    A wish is dropped before it is sent when metadata has overtaken it: the topic is gone, no replica of the partition is here, or
    the directory is the assigned one already. The last is believed only where nothing else was said of the replica meanwhile:
    it may not have come back as metadata yet, also where what was said last has failed.
    """

    def __init__(self, node_id: NodeId, taken_back: TakenBack = lambda topic_id, partition: ()) -> None:
        self._node_id = node_id
        self._taken_back = taken_back
        self._waiting: dict[Key, UUID] = {}
        self._sent: dict[Key, UUID] = {}
        self._told: dict[Key, UUID] = {}
        """The directory that was sent last for a replica, until metadata says the same."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._sent)

    @property
    def idle(self) -> bool:
        return not self._waiting

    def wish(self, topic_id: UUID, partition: int, directory_id: UUID) -> None:
        key = (topic_id, partition)
        if key not in self._waiting and self._sent.get(key) == directory_id:
            return
        self._waiting[key] = directory_id

    def request(self, broker_epoch: int, image: MetadataImage) -> AssignReplicasToDirsRequest | None:
        """The next request; None while one is with the controller, or when nothing is left to say."""
        if self._sent:
            return None
        self._drop_void(image)
        instead_of: list[UUID | None] = []
        for key in list(self._waiting)[:MAX_PER_REQUEST]:
            instead_of.append(self._instead_of(image, key))
            self._sent[key] = self._told[key] = self._waiting.pop(key)
        if not self._sent:
            return None
        return AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=broker_epoch,
            replicas=tuple(
                ReplicaDirectory(
                    topic_id=topic_id,
                    partition=partition,
                    directory_id=directory_id,
                    instead_of=instead,
                )
                for ((topic_id, partition), directory_id), instead in zip(self._sent.items(), instead_of, strict=True)
            ),
        )

    def _instead_of(self, image: MetadataImage, key: Key) -> UUID | None:
        """Return the directory that the controller may have for our replica although it has never been there: most likely the one
        that was sent last, or that metadata has."""
        never = self._taken_back(*key)
        likely = (self._told.get(key), self._assigned(image, key), *never) if never else ()
        return next((it for it in likely if it in never), None)

    def _drop_void(self, image: MetadataImage) -> None:
        for key, told in list(self._told.items()):
            assigned = self._assigned(image, key)
            if assigned is None or (assigned == told and key not in self._waiting):
                del self._told[key]
        for key, directory_id in list(self._waiting.items()):
            assigned = self._assigned(image, key)
            if assigned is None or (assigned == directory_id and key not in self._told):
                del self._waiting[key]

    def _assigned(self, image: MetadataImage, key: Key) -> UUID | None:
        """Return the directory that metadata has for our replica; None when there is no such replica."""
        topic = image.topics.topic_by_id(key[0])
        registration = None if topic is None else topic.partitions.get(key[1])
        if registration is None or self._node_id not in registration.replicas:
            return None
        return registration.directory_of(self._node_id)

    def failed(self) -> None:
        """The request as a whole failed, or its outcome is not known: all of it again, but for what was wished anew."""
        sent, self._sent = self._sent, {}
        self._waiting = {**sent, **self._waiting}

    def answered(self, response: AssignReplicasToDirsResponse) -> int:
        """Take the answer, and return how many replicas must be named again after a pause."""
        sent, self._sent = self._sent, {}
        results = {(result.topic_id, result.partition): result.error for result in response.replicas}
        again = 0
        for key, directory_id in sent.items():
            error = results.get(key, ErrorCode.UNKNOWN_SERVER_ERROR)
            if error in _VOID:
                self._told.pop(key, None)
            elif error is not ErrorCode.NONE and key not in self._waiting:
                self._waiting[key] = directory_id
                again += 1
        return again
