"""The metadata quorum of a simulated cluster: how it begins, and the disks and listeners that its controllers have by now.

The voters are the configured ones (`static`), or they are in the log from the beginning: one of them (`standalone`), or several
that every one of them was formatted with (`initial`). All other controllers are spares, which somebody may add.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias
from uuid import UUID

from kraftlite.config.server import ServerConfig
from kraftlite.model.ids import NodeId, random_uuid, uuid_to_str
from kraftlite.node.forming import Formation, formation

STATIC: Final = "static"
STANDALONE: Final = "standalone"
INITIAL: Final = "initial"
PORT: Final = 9093

Keys: TypeAlias = tuple[tuple[NodeId, UUID | None], ...]
"""A set of voters, in the order of their ids; a directory id None accepts any directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forming:
    """`voters` are numbers of nodes; `joins` are those of the nodes that ask to be added by themselves (KIP-1186)."""

    how: str
    voters: tuple[int, ...]
    joins: tuple[int, ...] = ()

    def __str__(self) -> str:
        joins = f", {', '.join(map(str, self.joins))} join" if self.joins else ""
        return f"{self.how} {'+'.join(map(str, self.voters))}{joins}"


class SimQuorum:
    """Keys of the configuration and options of `format`, node by node. `forming` None: the voters are all controllers, for ever.

    `lost`: an administrator that knows of a lost disk removes no other voter, and a disk is lost only while no removal is under
    way (`removals`, and `removals_until_us` for one whose answer was lost): a majority must always be left.
    """

    def __init__(self, forming: Forming | None, controllers: tuple[int, ...], seed: int) -> None:
        self.forming = forming
        self._controllers = controllers
        self._voters = controllers if forming is None else forming.voters
        self._rng = random.Random(f"membership/directories/{seed}")
        self._directories = {number: random_uuid(self._rng) for number in self._voters} if self._has_entries else {}
        self._ports: dict[int, int] = {}
        self._renewed: dict[int, None] = {}
        self.removals = 0
        self.removals_until_us = 0
        self.leader_stays = False
        """The faults are over, and nobody removes the leader any more: each new one gives every broker's session its whole time
        again, so that of one that died might never end."""
        self.carry_out: Callable[[str, NodeId | None], None] = lambda kind, node_id: None
        """The administrator's ear, for orders that come at a given moment."""

    def allows_loss(self, now_us: int) -> bool:
        """Return whether no removal is on its way to the leader."""
        return self.removals == 0 and now_us >= self.removals_until_us

    @property
    def _has_entries(self) -> bool:
        """Return whether the voters are in the log from the beginning."""
        return self.forming is not None and self.forming.how != STATIC

    # --- configuration

    def settings(self, number: int) -> dict[str, str]:
        """The keys that say where the quorum is."""
        static = ",".join(f"{it}@n{it}:{PORT}" for it in self._voters)
        if self.forming is None:
            return {"controller.quorum.voters": static}
        servers = ",".join(f"n{it}:{self.port(it)}" for it in self._controllers)
        found = {"controller.quorum.bootstrap.servers": servers}
        spare = number in self._controllers and number not in self._voters
        if self.forming.how == STATIC and not spare and number not in self._renewed:
            found["controller.quorum.voters"] = static
        if number in self.forming.joins:
            found["controller.quorum.auto.join.enable"] = "true"
        return found

    def port(self, number: int) -> int:
        return self._ports.get(number, PORT)

    def move(self, number: int) -> None:
        """The controller listens on another port from its next start on."""
        self._ports[number] = self.port(number) + 1000

    # --- formatting

    def formation(self, config: ServerConfig) -> Formation | None:
        """The options with which a node is formatted: one with a new disk waits to be added."""
        number = int(config.node_id)
        if self.forming is None or (self.forming.how == STATIC and config.values.get("controller.quorum.voters")):
            return None
        if not self._has_entries or number not in self._voters or number in self._renewed:
            return formation(config, no_initial_controllers=True, entropy=self._rng)
        text = ",".join(f"{it}@n{it}:{PORT}:{uuid_to_str(self._directories[it])}" for it in self._voters)
        return formation(config, initial_controllers=text, entropy=self._rng)

    def renew(self, number: int) -> None:
        """The controller gets a new disk, and is no voter of the beginning any more."""
        self._renewed[number] = None

    def beginning(self, number: int) -> Keys:
        """The voters of this node before its log says anything."""
        if not self._has_entries:
            spare = number in self._controllers and number not in self._voters
            return () if spare or number in self._renewed else tuple((NodeId(it), None) for it in self._voters)
        return self.first if self.first_version(number) else ()

    def first_version(self, number: int) -> int:
        """The kraft.version of this node before its log says anything: that of the snapshot it was formatted with."""
        return int(self._has_entries and number in self._voters and number not in self._renewed)

    @property
    def first(self) -> Keys:
        """The first set of all."""
        return tuple((NodeId(it), self._directories.get(it)) for it in self._voters)


def controllers_of(roles: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(number for number, it in enumerate(roles, 1) if "controller" in it)


def described(keys: Keys) -> str:
    """A set for a reader: ids, with the beginning of their directories' ids."""
    return "{" + ", ".join(f"{node_id}" if it is None else f"{node_id}/{uuid_to_str(it)[:4]}" for node_id, it in keys) + "}"


def one_step(before: Keys, after: Keys) -> tuple[Mapping[NodeId, UUID | None], Mapping[NodeId, UUID | None]]:
    """The replicas that were added and those that were removed, by id."""
    added = {node_id: it for node_id, it in after if (node_id, it) not in before}
    removed = {node_id: it for node_id, it in before if (node_id, it) not in after}
    return added, removed
