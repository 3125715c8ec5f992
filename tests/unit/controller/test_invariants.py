"""Each invariant of the controller's state: broken, and seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kraftlite.controller.heartbeats import Leaving
from kraftlite.controller.state import ControllerState
from kraftlite.model.ids import NodeId
from tests.harness.controller_world import World

Break = Callable[[ControllerState], object]


def ready() -> World:
    """Brokers 1 to 3, topic t of two partitions on all of them."""
    world = World(3)
    world.start_brokers(1, 2, 3)
    world.create("t", assignments=[(1, 2, 3), (2, 3, 1)])
    world.state.check()
    return world


def partition(**fields: Any) -> Break:
    """Changes partition 0 behind the back of the indexes."""

    def change(state: ControllerState) -> None:
        info = state.replication.topic("t")
        assert info is not None
        info.partitions[0] = replace(info.partitions[0], **fields)

    return change


def fence(broker_id: int) -> Break:
    """Both of hard and soft state say so, no partition has heard of it."""

    def change(state: ControllerState) -> None:
        state.cluster.brokers[NodeId(broker_id)] = replace(state.cluster.brokers[NodeId(broker_id)], fenced=True)
        state.cluster.live.brokers[NodeId(broker_id)].fenced = True

    return change


def _put_ref(index: Any) -> None:
    index[77] = ("t", 0)


def _isr_of(state: ControllerState, broker_id: int) -> Any:
    return state.replication._isr_of[NodeId(broker_id)]


BROKEN: dict[str, tuple[Break, str]] = {
    "a topic without a name": (lambda state: state.replication.topic_ids.pop("t"), r"topics \{.*'t'\}, by name \{\}"),
    "no replicas": (partition(replicas=()), r"t-0 has the replicas \(\)"),
    "a replica twice": (partition(replicas=(1, 2, 2)), r"t-0 has the replicas \(1, 2, 2\)"),
    "an empty ISR": (partition(isr=()), r"t-0 is led by 1 and has an empty ISR"),
    "an eligible member of the ISR": (partition(elr=(2,)), r"t-0 has the ELR \(2,\)"),
    "an eligible stranger": (partition(elr=(4,)), r"t-0 has the ELR \(4,\)"),
    "the ELR index": (lambda state: _put_ref(state.replication._elr_of.setdefault(NodeId(1), {})), r"the ELR index is .*77"),
    "an ISR out of order": (partition(isr=(2, 1, 3)), r"t-0 has the ISR \(2, 1, 3\), .* should be \(1, 2, 3\)"),
    "a member that is no replica": (partition(isr=(1, 4)), r"t-0 has the ISR \(1, 4\), .* should be \(1,\)"),
    "a leader out of the ISR": (partition(isr=(2, 3)), r"t-0 is led by 1, who is not in its ISR \(2, 3\)"),
    "a leader epoch ahead": (partition(leader_epoch=7), r"t-0 is in leader epoch 7 and partition epoch"),
    "the ISR index": (lambda state: _isr_of(state, 1).pop(next(iter(_isr_of(state, 1)))), r"the ISR index is"),
    "the leader index": (lambda state: state.replication._led_by[NodeId(1)].add(77), r"the leader index is .*77"),
    "the leaderless index": (
        lambda state: _put_ref(state.replication._leaderless),
        r"the leaderless index is \{77\}",
    ),
    "the imbalance index": (lambda state: _put_ref(state.replication._imbalanced), r"the imbalance index is \{77\}"),
    "the number of partitions": (
        lambda state: state.replication.partition_count.set(5),
        r"5 partitions are counted, there are 2",
    ),
    "a directory without an owner": (
        lambda state: state.cluster.directory_owners.__setitem__(UUID(int=9), NodeId(1)),
        r"directories belong to .*, the registrations say",
    ),
    "a registration without an offset": (
        lambda state: state.cluster.registration_offsets.pop(NodeId(2)),
        r"brokers \{1, 2, 3\} are registered, offsets are known of \{1, 3\}",
    ),
    "heartbeats that believe otherwise": (
        lambda state: setattr(state.cluster.live.brokers[NodeId(2)], "fenced", True),
        r"fenced by heartbeats \{.*2: True.*\}, by registrations \{.*2: False",
    ),
    "a broker that is to be fenced, and is": (
        lambda state: (fence(2)(state), state.cluster.live.leaving.__setitem__(NodeId(2), Leaving(0, "silent"))),
        r"\[2\] are fenced already",
    ),
    "a fenced leader": (fence(1), r"t-0 is led by 1, who is not active"),
    "a fenced member": (fence(3), r"t-0 has the ISR \(1, 2, 3\), of which \[3\] are not active"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_state_is_seen(what: str) -> None:
    state = ready().state
    change, told = BROKEN[what]
    change(state)
    with pytest.raises(AssertionError, match=told):
        state.check()


def test_a_controller_that_takes_over_looks_at_its_registrations() -> None:
    world = ready()
    standby = next(node.core for node in world.nodes.values() if not node.core.active)
    standby.state.cluster.registration_offsets.pop(NodeId(2))
    with pytest.raises(AssertionError, match="offsets are known of"):
        standby._claim(99, 0)
