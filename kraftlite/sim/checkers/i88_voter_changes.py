"""Invariant 88: a change of the voters that was acknowledged is committed, once; one that was refused is not."""

from __future__ import annotations

from typing import ClassVar, Final, TypeAlias
from uuid import UUID

from kraftlite.metadata.features import KRAFT_VERSION
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId, uuid_to_str
from kraftlite.model.messages.controller import UpdateFeaturesRequest
from kraftlite.model.messages.methods import ADD_VOTER, REMOVE_VOTER, UPDATE_FEATURES
from kraftlite.model.messages.raft import AddVoterRequest, AddVoterResponse, RemoveVoterRequest, RemoveVoterResponse
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.checkers.views import Entry
from kraftlite.sim.quorum import one_step
from kraftlite.simhost.network import AnyExchange

_OPEN: Final = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""Answers after which the record may be in the log, and stay."""
_REQUEST: TypeAlias = AddVoterRequest | RemoveVoterRequest
_RESPONSE: TypeAlias = AddVoterResponse | RemoveVoterResponse
_CHANGE: TypeAlias = tuple[str, NodeId, UUID | None]


class VoterChanges(MetadataChecker):
    """Counts, for each replica, the additions and the removals: those that were asked for and not refused, those that the leader
    has said to be done, and those in the committed log. Whoever asks, an administrator or the controller itself, goes through
    these two calls. The configured voters come into the log, with the kraft.version that has them there, when an update of
    features asks for that level, and not when it asks only whether it may (DQ-40)."""

    numbers: ClassVar[tuple[int, ...]] = (88,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._asked: dict[_CHANGE, int] = {}
        self._acknowledged: dict[_CHANGE, int] = {}
        self._done: dict[_CHANGE, int] = {}
        self._upgrade_asked = False
        self.facts.watch_arrival(UPDATE_FEATURES, self._on_update)
        self.facts.watch_arrival(ADD_VOTER, self._on_arrival)
        self.facts.watch_arrival(REMOVE_VOTER, self._on_arrival)
        self.facts.watch_served(ADD_VOTER, self._on_served)
        self.facts.watch_served(REMOVE_VOTER, self._on_served)
        self.facts.watch_answer(ADD_VOTER, self._on_answer)
        self.facts.watch_answer(REMOVE_VOTER, self._on_answer)

    def _on_arrival(self, exchange: AnyExchange) -> None:
        change = _change_of(exchange.request)
        self._asked[change] = self._asked.get(change, 0) + 1

    def _on_update(self, exchange: AnyExchange) -> None:
        request: UpdateFeaturesRequest = exchange.request
        if not request.validate_only and any(it.name == KRAFT_VERSION for it in request.updates):
            self._upgrade_asked = True

    def _on_served(self, exchange: AnyExchange, response: _RESPONSE) -> None:
        if response.error not in _OPEN:
            self._asked[_change_of(exchange.request)] -= 1

    def _on_answer(self, source: NodeId, target: NodeId, request: _REQUEST, response: _RESPONSE) -> None:
        if response.error is not ErrorCode.NONE or (isinstance(request, AddVoterRequest) and not request.ack_when_committed):
            return
        change = _change_of(request)
        told = self._acknowledged[change] = self._acknowledged.get(change, 0) + 1
        done = self._done.get(change, 0)
        if told > done:
            self.fail(f"node {target} says that it has done '{_text(change)}', the {told}. time; that is committed {done} times")

    def on_commit(self, entry: Entry, before: MetadataState, after: MetadataState) -> None:
        sets = self.facts.voter_sets
        if entry.voters is None:
            return
        was = sets.before(len(sets.committed) - 1)
        if [it for it, _ in was] == [it for it, _ in entry.voters] and all(directory is None for _, directory in was):
            if not self._upgrade_asked:
                self.fail(f"offset {entry.voters_offset} is committed and raises the kraft.version, which nobody has asked for")
            return  # the configured voters come into the log
        added, removed = one_step(was, entry.voters)
        for kind, keys in (("add", added), ("remove", removed)):
            for node_id, directory in keys.items():
                self._count((kind, node_id, directory), entry)

    def _count(self, change: _CHANGE, entry: Entry) -> None:
        done = self._done[change] = self._done.get(change, 0) + 1
        if done > self._asked.get(change, 0):
            self.fail(
                f"offset {entry.voters_offset} is committed and says '{_text(change)}', the {done}. time; asked for and not "
                f"refused was that {self._asked.get(change, 0)} times"
            )


def _change_of(request: _REQUEST) -> _CHANGE:
    kind = "add" if isinstance(request, AddVoterRequest) else "remove"
    return kind, request.voter_id, request.voter_directory_id


def _text(change: _CHANGE) -> str:
    kind, node_id, directory = change
    return f"{kind} node {node_id} with directory {'none' if directory is None else uuid_to_str(directory)[:4]}"
