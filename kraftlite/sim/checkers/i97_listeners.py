"""Invariant 97: when the faults are over, every broker is registered with the listeners that its configuration names (CB-06)."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import BROKER
from kraftlite.simhost.host import SimHost


class RegisteredListeners(MetadataChecker):
    """Clients learn addresses from registrations alone: at a listener that is not in one nobody is found. The names and addresses
    are read from the text of `listeners` here, the metadata's or else the file's; those of controllers are not a broker's."""

    numbers: ClassVar[tuple[int, ...]] = (97,)

    def unsettled(self) -> str | None:
        state = self.facts.history.latest
        for node in self.world.cluster.brokers:
            registration = state.brokers.get(node.node_id)
            if registration is None or node.node is None or not node.started:
                continue
            text = state.configs.get((BROKER, str(node.node_id)), {}).get("listeners", node.config.values["listeners"])
            found = sorted(f"{it.name}://{it.host}:{it.port}" for it in registration.listeners)
            if found != (wanted := self._of_broker(node, text)):
                return f"broker {node.node_id} is registered with {found}; its configuration says {wanted}"
        return None

    @staticmethod
    def _of_broker(node: SimHost, text: str) -> list[str]:
        controllers = tuple(f"{name}://" for name in node.config.controller_listener_names)
        return sorted(item for item in text.split(",") if not item.startswith(controllers))
