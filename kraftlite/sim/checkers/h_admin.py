"""An acknowledged change of the metadata is committed, once, between its call and its answer, and stays (CE-12, ML-01)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kraftlite.sim.checkers.facts import Facts
from kraftlite.sim.checkers.history_checker import HistoryChecker
from kraftlite.sim.checkers.model import TOPIC, MetadataState
from kraftlite.sim.checkers.replica_facts import replica_facts
from kraftlite.sim.history import Admin, MetadataRead, Verdict

_MAYBE_OURSELVES = (
    "TOPIC_ALREADY_EXISTS", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_PARTITIONS", "INVALID_REPLICATION_FACTOR",
)  # fmt: skip
"""A broker passes a call on until the controller answers (CP-57): what is done already may have been done by the same call; and
what is refused now, because brokers are away, may have been written before, by a controller that answers nobody any more."""

Happened = Callable[[MetadataState, MetadataState, Mapping[str, Any]], bool]


class AdminEffects(HistoryChecker):
    """An acknowledged change is in the committed log, by a record that was committed after the call and before the answer. A
    refused one is not. `h_metadata` compares every read with the log; also without it, a topic whose creation or deletion was
    acknowledged is not gone, or there again, at a later offset than one at which it was there, or gone again, unless another
    call concerned it."""

    def at_end(self) -> None:
        metadata = self.metadata
        known = metadata is not None and metadata.committed_end > 0
        changes = list(self._changes(metadata)) if metadata is not None else []
        for call in self.history.admins:
            if call.kind in _HAPPENED:
                if known:
                    self._check_committed(call, changes)
                self._check_reads(call)

    def _changes(self, metadata: Facts) -> Iterator[tuple[int, MetadataState, MetadataState]]:
        """(when it was committed, before, after) of every record that changed anything."""
        committed_us = replica_facts(self.world).committed_us
        before = MetadataState()
        for offset in sorted(committed_us):
            after = metadata.history.applied(offset)
            if after is not before:
                yield committed_us[offset], before, after
            before = after

    def _check_committed(self, call: Admin, changes: Sequence[tuple[int, MetadataState, MetadataState]]) -> None:
        happened, part = _HAPPENED[call.kind]
        times = [
            at
            for at, before, after in changes
            if at >= call.invoked_us and part(before) is not part(after) and happened(before, after, call.facts)
        ]
        what = f"{call.kind} {dict(call.facts)} of {call.client}, called at {call.invoked_us} us,"
        if call.verdict is Verdict.OK and call.returned_us is not None and not any(at <= call.returned_us for at in times):
            self.fail(f"{what} was acknowledged at {call.returned_us} us, but was committed at {times or 'no time'}")
        if call.verdict is Verdict.FAILED and call.error not in _MAYBE_OURSELVES and times and self._is_only(call):
            self.fail(f"{what} was refused with {call.error}, but was committed at {times}")

    def _is_only(self, call: Admin) -> bool:
        """Return whether no other call could have done the same."""
        return not any(
            it is not call and it.kind == call.kind and dict(it.facts) == dict(call.facts) for it in self.history.admins
        )

    def _check_reads(self, call: Admin) -> None:
        if call.verdict is not Verdict.OK or call.kind not in ("create_topics", "delete_topics") or call.returned_us is None:
            return
        topic = call.facts["topic"]
        if any(_interferes(call, it) for it in self.history.admins):
            return
        deleted = call.kind == "delete_topics"
        present_at: int | None = None
        gone_at: int | None = None
        for read in sorted(self.history.metadata, key=lambda it: it.metadata_offset):
            there = topic in read.topic_ids
            if there and gone_at is not None and gone_at < read.metadata_offset:
                self._contradicted(call, read, f"gone at metadata offset {gone_at}, but is there")
            if there:
                present_at = read.metadata_offset if present_at is None else present_at
            elif present_at is not None and present_at < read.metadata_offset:
                gone_at = read.metadata_offset
                if not deleted:
                    self._contradicted(call, read, f"there at metadata offset {present_at}, but is gone")

    def _contradicted(self, call: Admin, read: MetadataRead, what: str) -> None:
        self.fail(
            f"{call.kind} {call.facts['topic']} was acknowledged at {call.returned_us} us; the topic was {what} "
            f"for {read.client} at node {read.broker} at offset {read.metadata_offset}"
        )


def _interferes(call: Admin, other: Admin) -> bool:
    """Return whether another call may have brought the topic back, or removed it, at some other time."""
    if other is call or other.facts.get("topic") != call.facts["topic"]:
        return False
    if other.kind == "delete_topics":
        return True
    late = other.verdict is Verdict.UNKNOWN or other.returned_us is None or other.returned_us >= call.invoked_us
    return other.kind == "create_topics" and call.kind == "delete_topics" and late


def _created(before: MetadataState, after: MetadataState, facts: Mapping[str, Any]) -> bool:
    """The last partition of a new topic was made, in the topic's own batch."""
    old, new = before.topic_named(facts["topic"]), after.topic_named(facts["topic"])
    if new is None or len(new[1].partitions) != facts["partitions"]:
        return False
    return old is None or len(old[1].partitions) == facts["partitions"] - 1


def _deleted(before: MetadataState, after: MetadataState, facts: Mapping[str, Any]) -> bool:
    return before.topic_named(facts["topic"]) is not None and after.topic_named(facts["topic"]) is None


def _grown(before: MetadataState, after: MetadataState, facts: Mapping[str, Any]) -> bool:
    old, new = before.topic_named(facts["topic"]), after.topic_named(facts["topic"])
    if old is None or new is None:
        return False
    wanted: int = facts["partitions"]
    return len(old[1].partitions) < wanted <= len(new[1].partitions)


def _configured(before: MetadataState, after: MetadataState, facts: Mapping[str, Any]) -> bool:
    resource = (TOPIC, facts["topic"])
    old, new = before.configs.get(resource, {}), after.configs.get(resource, {})
    return old is not new and all(new.get(key) == value and old.get(key) != value for key, value in facts["config"].items())


def _topics(state: MetadataState) -> object:
    return state.topics


def _configs(state: MetadataState) -> object:
    return state.configs


_HAPPENED: Mapping[str, tuple[Happened, Callable[[MetadataState], object]]] = {
    "create_topics": (_created, _topics),
    "delete_topics": (_deleted, _topics),
    "create_partitions": (_grown, _topics),
    "alter_configs": (_configured, _configs),
}
"""The effect of a call, and the part of the state that is another object when it was done."""
