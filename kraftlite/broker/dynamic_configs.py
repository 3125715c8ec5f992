"""The configuration in force: what the file says, overlaid by what the metadata log says."""

from __future__ import annotations

from collections.abc import Mapping

from kraftlite.log.config import LogConfig
from kraftlite.metadata.image import ConfigurationsImage, MetadataImage
from kraftlite.model.broker_configs import broker_key_of, topic_defaults
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import ConfigResourceType
from kraftlite.runtime.ports import Tracer
from kraftlite.runtime.trace import NullTracer
from kraftlite.runtime.trace.broker import DynamicConfigIgnored

_PRODUCER_EXPIRATION = "producer.id.expiration.ms"


class DynamicConfigs:
    """Effective broker values and log configs as of the latest image.

    Precedence, strongest first: the topic's own, this broker's dynamic, the cluster-wide dynamic default, static.
    Source: CM-49, CM-52, CB-05.
    """

    def __init__(self, node_id: NodeId, static: Mapping[str, str], tracer: Tracer | None = None) -> None:
        self._node_id = node_id
        self._tracer = NullTracer() if tracer is None else tracer
        self._static = static
        self._configs: ConfigurationsImage = MetadataImage.EMPTY.configs
        self._broker_values: dict[str, str] | None = None
        self._topic_defaults: dict[str, str] | None = None
        self._log_configs: dict[str, LogConfig] = {}
        """By topic: all partitions of a topic share one object."""
        self._default_log_config: LogConfig | None = None
        """That of the topics that have no configs of their own."""

    def set_image(self, image: MetadataImage) -> None:
        if image.configs is not self._configs:
            self._configs = image.configs
            self._broker_values = self._topic_defaults = self._default_log_config = None
            self._log_configs.clear()

    def broker_values(self) -> Mapping[str, str]:
        if self._broker_values is None:
            self._broker_values = dict(self._static)
            for name in ("", str(self._node_id)):
                self._broker_values.update(self._usable(name, self._configs.get(ConfigResourceType.BROKER, name)))
        return self._broker_values

    def _usable(self, resource: str, values: Mapping[str, str]) -> Mapping[str, str]:
        """The values that can be read: one that cannot, which another software wrote, must not keep the others from their effect
        (CB-05)."""
        wrong: dict[str, str] = {}
        for name, text in values.items():
            key = broker_key_of(name)
            if key is None:
                continue
            try:
                key.parse(text)
            except ValueError as error:
                wrong[name] = str(error)
        if wrong:
            shown = resource or "<default>"
            self._tracer.emit(DynamicConfigIgnored(resource=shown, reasons=tuple(wrong[name] for name in sorted(wrong))))
        return {name: text for name, text in values.items() if name not in wrong} if wrong else values

    def topic_values(self, topic: str) -> Mapping[str, str]:
        """The configs that the topic has of its own."""
        return self._configs.get(ConfigResourceType.TOPIC, topic)

    def log_config_for(self, topic: str) -> LogConfig:
        """Raises ValueError for a value that no controller should have let pass."""
        own = self._configs.get(ConfigResourceType.TOPIC, topic)
        if own:
            found = self._log_configs.get(topic)
            if found is None:
                found = self._log_configs[topic] = self._log_config(own)
            return found
        if self._default_log_config is None:
            self._default_log_config = self._log_config(own)
        return self._default_log_config

    def _log_config(self, own: Mapping[str, str]) -> LogConfig:
        if self._topic_defaults is None:
            values = self.broker_values()
            self._topic_defaults = topic_defaults(values)
            if _PRODUCER_EXPIRATION in values:
                self._topic_defaults[_PRODUCER_EXPIRATION] = values[_PRODUCER_EXPIRATION]
        return LogConfig.from_map({**self._topic_defaults, **own})

    def concerns_this_broker(self, resource_type: int, name: str) -> bool:
        return resource_type == ConfigResourceType.BROKER and name in ("", str(self._node_id))
