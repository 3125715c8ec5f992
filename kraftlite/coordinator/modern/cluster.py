"""A shard's knowledge of the cluster: its topics, and the configs of groups."""

from __future__ import annotations

from typing import Final

from kraftlite.coordinator.config import GroupConfig
from kraftlite.metadata.image import MetadataImage, TopicsImage
from kraftlite.model.broker_configs import BROKER_CONFIGS
from kraftlite.model.group_configs import (
    ASSIGNMENT_INTERVAL,
    ASSIGNMENT_INTERVAL_KEY,
    GROUP_CONFIGS,
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
)
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import ConfigResourceType

GROUP_RESOURCE: Final = 32
"""`ConfigResource.Type.GROUP`."""


class Cluster:
    """The newest metadata this broker has applied. `topics_created_at`: the metadata offset up to which topics that match a
    regular expression may have come."""

    def __init__(self, config: GroupConfig, image: MetadataImage = MetadataImage.EMPTY, node_id: NodeId | None = None) -> None:
        """`node_id`: the broker, whose dynamic configs count. None: only those of all brokers."""
        self._config = config
        self._brokers: tuple[str, ...] = ("",) if node_id is None else (str(node_id), "")
        self.image = image
        self.topics_created_at = image.offset

    @property
    def topics(self) -> TopicsImage:
        return self.image.topics

    def session_timeout_ms(self, group_id: str) -> int:
        """The group's own, within what the broker allows; else the broker's."""
        config = self._config
        own = self._own(group_id, SESSION_TIMEOUT, config.consumer_session_timeout_ms)
        return min(max(own, config.consumer_min_session_timeout_ms), config.consumer_max_session_timeout_ms)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """The heartbeat interval of the group; looked up like the session timeout."""
        config = self._config
        own = self._own(group_id, HEARTBEAT_INTERVAL, config.consumer_heartbeat_interval_ms)
        return min(max(own, config.consumer_min_heartbeat_interval_ms), config.consumer_max_heartbeat_interval_ms)

    def assignment_interval_ms(self, group_id: str) -> int:
        """The time that a target assignment lasts at least (KIP-1263); looked up like the session timeout."""
        config = self._config
        own = self._own(
            group_id, ASSIGNMENT_INTERVAL, self._of_broker(ASSIGNMENT_INTERVAL_KEY, config.consumer_assignment_interval_ms)
        )
        return min(max(own, config.consumer_min_assignment_interval_ms), config.consumer_max_assignment_interval_ms)

    def _of_broker(self, key: str, default: int) -> int:
        """The dynamic value for this broker, or for all; else `default`, that of its file."""
        for name in self._brokers:
            value = self.image.configs.get(ConfigResourceType.BROKER, name).get(key)
            if value is not None:
                try:
                    found: int = BROKER_CONFIGS[key].parse(value)
                except ValueError:  # which no controller lets pass
                    continue
                return found
        return default

    def _own(self, group_id: str, key: str, default: int) -> int:
        value = self.image.configs.get(GROUP_RESOURCE, group_id).get(key)
        if value is None:
            return default
        try:
            found: int = GROUP_CONFIGS[key].parse(value)
        except ValueError:  # which no controller lets pass
            return default
        return found
