"""The first voters of a quorum whose voters are in the log: what the options of `format` say of them.

Source: KIP-853, Kafka's StorageTool and DynamicVoters; DQ-20 to DQ-23.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kraftlite.config.server import ServerConfig
from kraftlite.log.control import ControlRecord
from kraftlite.model.ids import NodeId, VoterEndpoint, is_reserved_uuid, random_uuid, uuid_from_str
from kraftlite.model.limits import MAX_INT32
from kraftlite.raft.membership import KRAFT_VERSION_DYNAMIC, KRAFT_VERSION_STATIC, membership_records
from kraftlite.raft.voters import Voter, VoterSet, listening_voter

STANDALONE: Final = "--standalone"
INITIAL: Final = "--initial-controllers"
NO_INITIAL: Final = "--no-initial-controllers"
_FLAGS: Final = f"{STANDALONE}, {INITIAL}, or {NO_INITIAL}"
_VERSIONS: Final = (KRAFT_VERSION_STATIC, KRAFT_VERSION_DYNAMIC)
_ENTRY: Final = re.compile(r"([0-9]{1,10})@(?:\[([0-9a-fA-F:%.]+)\]|([A-Za-z0-9_.%-]+)):([0-9]{1,5}):([A-Za-z0-9_-]{22})\Z")


class FormingError(Exception):
    """The options do not fit each other, or not the configuration. Nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formation:
    """The beginning of a node's quorum. `voters` None: this node waits until somebody adds it, or tells it who votes.

    `directory_id` of the metadata directory, where the voters say it; None: a random one.
    """

    voters: VoterSet | None = None
    directory_id: UUID | None = None

    def controls(self) -> tuple[ControlRecord, ...]:
        """The records of the bootstrap snapshot."""
        return () if self.voters is None else membership_records(KRAFT_VERSION_DYNAMIC, self.voters)


def formation(
    config: ServerConfig,
    *,
    standalone: bool = False,
    initial_controllers: str | None = None,
    no_initial_controllers: bool = False,
    kraft_version: int | None = None,
    entropy: random.Random,
) -> Formation | None:
    """The formation that the options of `format` ask for; None: the voters are those of the configuration.

    Raises FormingError (DQ-20, DQ-21).
    """
    given = {STANDALONE: standalone, INITIAL: initial_controllers is not None, NO_INITIAL: no_initial_controllers}
    chosen = [flag for flag, value in given.items() if value]
    if len(chosen) > 1:
        raise FormingError(f"{' and '.join(chosen)} exclude one another")
    static = bool(config.values.get("controller.quorum.voters", "").strip())
    if static and chosen and chosen != [NO_INITIAL]:  # which says of a static quorum nothing, in Kafka too
        raise FormingError(
            f"{chosen[0]}: you cannot specify controller.quorum.voters and format the node with it; those are the voters, so "
            "format without it"
        )
    alone = not static and not chosen and bool(config.quorum_voters)
    if config.is_controller and not static and not chosen and not alone:
        raise FormingError(
            f"Because controller.quorum.voters is not set on this controller, you must specify one of the following: {_FLAGS}."
        )
    is_static = static or alone
    if kraft_version not in (None, *_VERSIONS):
        raise FormingError(f"kraft.version={kraft_version}: allowed is 0 or 1")
    if kraft_version == KRAFT_VERSION_DYNAMIC and is_static:
        raise FormingError(
            f"Cannot set kraft.version to 1 unless one of the flags {_FLAGS} is used, and controller.quorum.voters is not set."
        )
    if kraft_version == KRAFT_VERSION_STATIC and not is_static:
        raise FormingError(f"Cannot set kraft.version to 0 unless controller.quorum.voters is set and none of {_FLAGS} is used.")
    if is_static:
        return None
    if standalone:
        return _standalone(config, entropy)
    if initial_controllers is not None:
        return _initial(config, initial_controllers)
    return Formation()


def _standalone(config: ServerConfig, entropy: random.Random) -> Formation:
    if not config.is_controller:
        raise FormingError(f"{STANDALONE}: you cannot use it on a broker node; the voters are controllers")
    directory_id = random_uuid(entropy)
    listeners = controller_endpoints(config)[:1]
    voter = listening_voter(config.node_id, directory_id, listeners, _VERSIONS, listeners[0].name)
    return Formation(voters=VoterSet((voter,)), directory_id=directory_id)


def _initial(config: ServerConfig, text: str) -> Formation:
    name = config.controller_listener_names[0]
    voters = [_entry(part.strip(), name) for part in text.split(",") if part.strip()]
    ids = [voter.id for voter in voters]
    directories = [voter.directory_id for voter in voters]
    if not voters or len(set(ids)) < len(ids) or len(set(directories)) < len(directories):
        raise FormingError(f"{INITIAL} {text}: name at least one controller, and each id and each directory id once")
    own = next((voter for voter in voters if voter.id == config.node_id and config.is_controller), None)
    return Formation(voters=VoterSet(tuple(voters)), directory_id=None if own is None else own.directory_id)


def _entry(text: str, listener: str) -> Voter:
    match = _ENTRY.match(text)
    if match is None or int(match[1]) > MAX_INT32 or not 1 <= int(match[4]) <= 65535:
        raise FormingError(f"{INITIAL}: {text}: allowed is id@host:port:directoryId, for example 1@localhost:9093:{'A' * 21}g")
    try:
        directory_id = uuid_from_str(match[5])
    except ValueError as error:
        raise FormingError(f"{INITIAL}: {text}: {error}") from None
    if is_reserved_uuid(directory_id):
        raise FormingError(f"{INITIAL}: {text}: the directory id is reserved; kraftlite random-uuid makes one")
    endpoint = VoterEndpoint(name=listener, host=match[2] or match[3], port=int(match[4]))
    return listening_voter(NodeId(int(match[1])), directory_id, (endpoint,), _VERSIONS, listener)


def controller_endpoints(config: ServerConfig) -> tuple[VoterEndpoint, ...]:
    """The controller listeners of a node as others reach them, the default one first."""
    names = config.controller_listener_names
    found = [listener for listener in config.advertised_controller_listeners if listener.name in names]
    found.sort(key=lambda listener: names.index(listener.name))
    return tuple(VoterEndpoint(name=listener.name, host=listener.host, port=listener.port) for listener in found)
