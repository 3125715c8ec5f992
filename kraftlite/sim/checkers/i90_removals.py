"""Invariant 90, of topics that users delete and let grow: who may not is refused, learns nothing, and changes nothing (SE-40)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, Final

from kraftlite.metadata import records as r
from kraftlite.model.acls import CLUSTER_NAME, Operation, ResourceType
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.i90_rights import Rules, oldest_image
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.checkers.views import Entry
from kraftlite.sim.services.doors import DOOR, DoorAnswer, DoorAsk
from kraftlite.sim.workloads.removals import DELETE, GROW, TOPICS
from kraftlite.simhost.network import AnyExchange

KINDS: Final = (DELETE, GROW)
REFUSED: Final = "TOPIC_AUTHORIZATION_FAILED"
UNDECIDED: Final = frozenset({"REQUEST_TIMED_OUT", "NOT_CONTROLLER", "UNKNOWN_SERVER_ERROR"})
"""Answers of a broker that has none of a controller: nobody may have looked at the rights."""
Mark = tuple[str, str]
"""Kind and topic."""


@dataclass(slots=True)
class _Asked:
    """A request under way: the oldest image that any node had when it came first, and how many copies of it are not answered."""

    oldest: int
    copies: int = 0


class RemovalsDecided(MetadataChecker):
    """A topic is deleted for those who may delete it and see it, or may delete any; who may only see it is told of one that is
    not there. Whoever names an id needs DELETE alone, and hears the name only if they may see it. Partitions are added for
    those who may alter the topic. Where only refused requests have asked for it, nothing is deleted, and nothing grows."""

    numbers: ClassVar[tuple[int, ...]] = (90,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._rules = Rules(world.cluster.shape.config)
        self._asked: dict[AnyExchange, _Asked] = {}
        self._may: Counter[Mark] = Counter()
        """Requests that were not refused, or not yet."""
        self._denied: dict[Mark, str] = {}
        self.judged: Counter[str] = Counter()
        self.facts.watch_arrival(DOOR, self._on_arrival)
        self.facts.watch_served(DOOR, self._on_served)

    def _on_arrival(self, exchange: AnyExchange) -> None:
        ask: DoorAsk = exchange.request
        if ask.kind in KINDS:
            asked = self._asked.setdefault(exchange, _Asked(oldest_image(self.facts)))
            asked.copies += 1
            self._may[ask.kind, ask.name] += 1

    def _on_served(self, exchange: AnyExchange, answer: DoorAnswer) -> None:
        ask: DoorAsk = exchange.request
        asked = self._asked.get(exchange)
        if asked is None:
            return
        asked.copies -= 1
        if not asked.copies:
            del self._asked[exchange]
        if not answer.response:
            return
        code, told = _result(ask, answer)
        if code in UNDECIDED:
            return
        history, first = self.facts.history, min(asked.oldest, answer.first)
        states = [history.visible(first), *history.between(first, self.facts.committed_end - 1)]
        found = {(self._allows(it, ask), self._sees(it, ask)) for it in states}
        where = f"node {exchange.target} answers {ask.kind} {ask.name} of {ask.principal} at {ask.host}: {code}"
        if code == REFUSED:
            mark = ask.kind, ask.name
            self._may[mark] -= 1
            self._denied[mark] = where
            if all(allowed for allowed, _ in found):
                self.fail(f"{where}; the entries say that it is allowed")
            if _by_id(ask) and told is not None and not any(sees for _, sees in found):
                self.fail(f"{where}, of {told}: the entries say that its name is none of their business")
        elif code == "NONE" or ask.kind == GROW:
            if not any(allowed for allowed, _ in found):
                self.fail(f"{where}; the entries say that it is denied")
        elif not _by_id(ask) and not any(allowed or sees for allowed, sees in found):
            self.fail(f"{where}; the entries say that nothing of it may be told")
        self.judged[f"{ask.kind} {code}"] += 1

    def _allows(self, state: MetadataState, ask: DoorAsk) -> bool:
        if ask.kind == GROW:
            return self._may_do(state, ask, Operation.ALTER)
        if self._may_do(state, ask, Operation.DELETE, on_cluster=True):
            return True
        return self._may_do(state, ask, Operation.DELETE) and (_by_id(ask) or self._sees(state, ask))

    def _sees(self, state: MetadataState, ask: DoorAsk) -> bool:
        return self._may_do(state, ask, Operation.DESCRIBE)

    def _may_do(self, state: MetadataState, ask: DoorAsk, operation: Operation, *, on_cluster: bool = False) -> bool:
        kind, name = (ResourceType.CLUSTER, CLUSTER_NAME) if on_cluster else (ResourceType.TOPIC, ask.name)
        return self._rules.allows(state.acls.values(), ask.principal, ask.host, operation, kind, name)

    def on_record(self, entry: Entry, offset: int, record: r.MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        if isinstance(record, r.RemoveTopicRecord):
            mark, topic = DELETE, before.topics.get(record.topic_id)
        elif isinstance(record, r.PartitionRecord) and record.partition > 0:
            mark, topic = GROW, after.topics.get(record.topic_id)
        else:
            return
        if topic is None or topic.name not in TOPICS:
            return
        denied = self._denied.get((mark, topic.name))
        if denied is not None and self._may[mark, topic.name] <= 0:
            self.fail(f"offset {offset} of the metadata log carries out what was denied: {denied}")


def _result(ask: DoorAsk, answer: DoorAnswer) -> tuple[str, str | None]:
    """The error code of the one topic in an answer, and the name that it is told under."""
    from kraftlite.protocol.kio_codec import decode_response

    found = decode_response(ask.api_key, ask.version, memoryview(answer.response))
    (one,) = found.responses if ask.kind == DELETE else found.results
    return one.error_code.name.upper(), one.name


def _by_id(ask: DoorAsk) -> bool:
    from kraftlite.protocol.kio_codec import decode_request

    if ask.kind != DELETE:
        return False
    (one,) = decode_request(ask.api_key, ask.version, memoryview(ask.body), 0).topics
    return one.name is None
