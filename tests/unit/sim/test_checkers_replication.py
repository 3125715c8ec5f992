"""Each checker of partition replication finds a violation that was made on the real objects; and none where all is well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraftlite.log.batch import parse_header, stamp
from kraftlite.log.segment import Appended
from kraftlite.metadata.records import ConfigRecord, FeatureLevelRecord, PartitionChangeRecord
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.controller import AlterPartitionItem, BrokerHeartbeatRequest, BrokerHeartbeatResponse, IsrMember
from kraftlite.model.messages.methods import BROKER_HEARTBEAT, REPLICA_FETCH
from kraftlite.model.messages.replica import ReplicaFetchResponse, ReplicaFetchResult
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import FetchResult, ProduceResult
from kraftlite.replication.isr import PendingIsr
from kraftlite.runtime.trace.controller import BrokerStateChanged as BrokerMoved
from kraftlite.runtime.trace.partition import Diverged, HwAdvanced, ProduceCompleted
from kraftlite.sim.checkers.base import CheckerFactory, LivenessViolation, Violation
from kraftlite.sim.checkers.catalog_replication import REPLICATION_AND_HISTORY
from kraftlite.sim.checkers.controlled_shutdown import ControlledShutdown
from kraftlite.sim.checkers.i24_leader_completeness import LeaderCompleteness
from kraftlite.sim.checkers.i25_candidate_completeness import CandidateCompleteness
from kraftlite.sim.checkers.i26_replication_quorum import ReplicationQuorum
from kraftlite.sim.checkers.i27_unclean_exclusion import UncleanExclusion
from kraftlite.sim.checkers.i28_log_matching import LogMatching
from kraftlite.sim.checkers.i29_consistent_reads import ConsistentReads
from kraftlite.sim.checkers.i30_nothing_lost import NothingLost
from kraftlite.sim.checkers.i31_fetcher_validity import FetcherValidity
from kraftlite.sim.checkers.i32_applied_hw import AppliedHw
from kraftlite.sim.checkers.i33_liveness import ReplicationLiveness
from kraftlite.sim.checkers.losses_keeper import UNCLEAN, LossesKeeper, partition_of
from kraftlite.sim.checkers.model import TOPIC
from kraftlite.sim.checkers.producer_state import ProducerStateKept
from kraftlite.sim.checkers.replica_facts import replica_facts
from kraftlite.sim.checkers.self_checks import SelfCheckReplicas
from kraftlite.sim.cluster import CLIENT
from kraftlite.sim.service import FETCH, PRODUCE, FetchAsk, ProduceAsk
from kraftlite.simhost.host import SimHost
from tests.harness.orders_cluster import TP, Orders, orders
from tests.harness.violations import Cases, assert_found

CASES: Cases[Orders] = Cases()


@pytest.fixture
def make() -> Iterator[Callable[..., Orders]]:
    with orders() as start:
        yield start


# --- 24, 25: who leads and who may lead


@CASES.breaks(LeaderCompleteness, "was chosen by the controller, but its LEO is 1, but 3 is committed")
def a_leader_that_loses_its_log(cluster: Orders) -> None:
    cluster.log(cluster.leader).truncate_to(1, allow_below_hw=True)
    cluster.go(1_000)


@CASES.breaks(LeaderCompleteness, r"was chosen by the controller, but it has \[2,3\)@1")
def a_leader_with_another_record(cluster: Orders) -> None:
    log = cluster.log(cluster.leader)
    log.truncate_to(2, allow_below_hw=True)
    other = bytearray(cluster.batch("other", sequence=2))
    stamp(other, 2, 1)
    log.append_as_follower(bytes(other))
    cluster.go(1_000)


@CASES.breaks(LossesKeeper, "was elected at metadata offset .*, but the ISR was .* and unclean.leader.election.enable=False")
def an_unclean_election_that_nobody_allowed(cluster: Orders) -> None:
    out = cluster.follower.node_id
    cluster.kill(out)
    cluster.until(lambda: out not in cluster.isr)
    cluster.write(PartitionChangeRecord(topic_id=cluster.key.topic_id, partition=0, isr=(out,), leader=out))


@CASES.breaks(CandidateCompleteness, "is in the ISR, but its LEO is 0, but 3 is committed")
def a_follower_that_loses_its_log(cluster: Orders) -> None:
    cluster.log(cluster.follower).truncate_fully_and_start_at(0)
    cluster.go(1_000)


@CASES.breaks(CandidateCompleteness, "is in the ISR, but its LEO is 2, but 3 is committed")
def a_replica_in_the_isr_that_is_behind(cluster: Orders) -> None:
    """It was out of it, and the controller's log says that it is in it."""
    behind = cluster.follower
    cluster.kill(behind.node_id)
    cluster.until(lambda: behind.node_id not in cluster.isr)
    for node in cluster.cluster.brokers:
        cluster.cluster.network.cut(node.node_id, behind.node_id)
    cluster.boot(behind.node_id)
    cluster.log(behind).truncate_to(2, allow_below_hw=True)
    cluster.write(PartitionChangeRecord(topic_id=cluster.key.topic_id, partition=0, isr=(*cluster.isr, behind.node_id)))
    cluster.go(100)


# --- 26: what the HW waits for


@CASES.breaks(ReplicationQuorum, r"waits for \(.,\), the controller may elect")
def a_leader_that_waits_for_itself(cluster: Orders) -> None:
    state = cluster.partition(cluster.leader).leader
    assert state is not None
    state.isr.maximal = (cluster.leader.node_id,)
    cluster.go(1_000)


@CASES.breaks(ReplicationQuorum, "with nothing pending")
def a_leader_that_waits_for_too_many(cluster: Orders) -> None:
    cluster.kill(cluster.follower.node_id)
    cluster.until(lambda: len(cluster.isr) == 2)
    cluster.go(500)
    state = cluster.partition(cluster.leader).leader
    assert state is not None
    state.isr.maximal = tuple(NodeId(it) for it in (2, 3, 4))
    cluster.go(1_000)


@CASES.breaks(ReplicationQuorum, "of its ISR .* sent fetches at up to 3 in it")
def a_hw_that_nobody_has_confirmed(cluster: Orders) -> None:
    cluster.only_leader_writes()
    cluster.log(cluster.leader).update_hw(4)
    cluster.go(1_000)


@CASES.breaks(ReplicationQuorum, "min.insync.replicas is 4")
def a_hw_that_moves_below_min_isr(cluster: Orders) -> None:
    cluster.partition(cluster.leader).min_isr = 4
    leader = cluster.leader
    leader.on_event(leader, HwAdvanced(tp=TP, old=3, new=4))
    cluster.go(1)


@CASES.breaks(ReplicationQuorum, "goes by min.insync.replicas=3, it is 1")
def a_leader_with_another_min_isr(cluster: Orders) -> None:
    cluster.partition(cluster.leader).min_isr = 3
    cluster.at_end()


# --- 27: who joins the ISR


@CASES.breaks(UncleanExclusion, "proposes to add node . with broker epoch 999, which did not fetch in it")
def a_replica_that_joins_without_a_fetch(cluster: Orders) -> None:
    out = cluster.follower.node_id
    cluster.kill(out)
    cluster.until(lambda: out not in cluster.isr)
    cluster.go(500)
    partition = cluster.partition(cluster.leader)
    assert partition.leader is not None
    item = AlterPartitionItem(
        topic_id=cluster.key.topic_id,
        partition=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr=tuple(IsrMember(broker_id=it, broker_epoch=999) for it in (*cluster.isr, out)),
        recovering=False,
    )
    partition.leader.isr.propose(PendingIsr(item=item, added=(out,), removed=()), partition.replicas)
    cluster.go(1_000)


@CASES.breaks(UncleanExclusion, "lost bytes in a power cut, is registered anew, and is in the ISR")
def a_replica_that_lost_bytes_and_stays_in_the_isr(cluster: Orders) -> None:
    lossy, kept = cluster.follower, cluster.isr
    cluster.write(FeatureLevelRecord(name="eligible.leader.replicas.version", level=0))
    cluster.power_cut(lossy, ["/data/orders-0/00000000000000000000.log"])
    elections = cluster.controller().state.elections
    elections.leader_and_isr_updates = lambda *args, **options: iter(())  # type: ignore[method-assign]
    cluster.boot(lossy.node_id)
    cluster.write(PartitionChangeRecord(topic_id=cluster.key.topic_id, partition=0, isr=kept))
    cluster.go(100)


# --- 28: logs


@CASES.breaks(LogMatching, "where another replica has")
def two_records_at_one_offset(cluster: Orders) -> None:
    cluster.only_leader_writes()
    other = bytearray(cluster.batch("other", sequence=3))
    stamp(other, 3, 0)
    cluster.log(cluster.follower).append_as_follower(bytes(other))
    cluster.go(1_000)


@CASES.breaks(LogMatching, "the CRC of the batch at 3 is wrong")
def a_torn_batch(cluster: Orders) -> None:
    torn = bytearray(cluster.batch())
    stamp(torn, 3, 0)
    torn[-1] ^= 1
    log = cluster.log(cluster.leader)
    log._ctx.segments.active.append(torn, (Appended(3, len(torn), parse_header(torn).max_timestamp),))
    log._ctx.leo = 4
    cluster.go(1_000)


@CASES.breaks(LogMatching, "has no batch at 3, its LEO is 9")
def a_log_that_ends_before_its_leo(cluster: Orders) -> None:
    cluster.log(cluster.follower)._ctx.leo = 9
    cluster.go(1_000)


@CASES.breaks(LogMatching, "where offset 3 should be")
def a_gap(cluster: Orders) -> None:
    far = bytearray(cluster.batch())
    stamp(far, 5, 0)
    cluster.log(cluster.leader).append_as_follower(bytes(far), allow_gaps=True)
    cluster.go(1_000)


@CASES.breaks(LogMatching, "takes 0 for epoch None")
def epochs_that_are_forgotten(cluster: Orders) -> None:
    log = cluster.log(cluster.follower)
    log.truncate_to(2, allow_below_hw=True)
    log._ctx.epochs.clear()
    cluster.go(1_000)


@CASES.breaks(LogMatching, "has the HW 3, but it has")
def another_record_below_the_hw(cluster: Orders) -> None:
    log = cluster.log(cluster.follower)
    log.truncate_to(2, allow_below_hw=True)
    other = bytearray(cluster.batch("other", sequence=2))
    stamp(other, 2, 1)
    log.append_as_follower(bytes(other))
    log.update_hw(3)
    cluster.go(1_000)


# --- 29, 30: what clients are told


def fetched(cluster: Orders, records: bytes, hw: int) -> None:
    answer = FetchResult(
        tp=TP, error=ErrorCode.NONE, hw=hw, last_stable_offset=hw, log_start_offset=0, records=records
    )  # fmt: skip
    cluster._tell(lambda it: it.on_answer(CLIENT, cluster.leader.node_id, FETCH, FetchAsk(TP, 0, None, 0, 1), answer))
    cluster.go(1)


@CASES.breaks(ConsistentReads, r"\[3,4\)@0 .* was given to a consumer, committed is \[None\], up to \[3\]")
def a_read_above_the_hw(cluster: Orders) -> None:
    cluster.only_leader_writes()
    fetched(cluster, cluster.log(cluster.leader).read(3, 1_000, up_to=4), hw=4)


@CASES.breaks(ConsistentReads, "was given to a consumer with the HW 2")
def a_read_above_the_hw_that_was_told(cluster: Orders) -> None:
    fetched(cluster, cluster.log(cluster.leader).read(0, 1_000, up_to=3), hw=2)


@CASES.breaks(ConsistentReads, r"committed is \[\[0,1\)@0")
def a_read_of_another_record(cluster: Orders) -> None:
    fetched(cluster, cluster.batch("other"), hw=3)


@CASES.breaks(ConsistentReads, "the CRC of .* is wrong")
def a_read_of_a_torn_record(cluster: Orders) -> None:
    data = bytearray(cluster.log(cluster.leader).read(0, 1_000, up_to=3))
    data[-1] ^= 1
    fetched(cluster, bytes(data), hw=3)


def acknowledged(cluster: Orders, batch: bytes, offset: int) -> None:
    answer = ProduceResult(tp=TP, error=ErrorCode.NONE, base_offset=offset)
    ask = ProduceAsk(TP, -1, 1_000, batch)
    cluster._tell(lambda it: it.on_answer(CLIENT, cluster.leader.node_id, PRODUCE, ask, answer))
    cluster.go(1)


@CASES.breaks(NothingLost, r"acknowledged \[3,4\) for all, committed is \[3\]")
def an_acknowledgement_before_the_hw(cluster: Orders) -> None:
    cluster.only_leader_writes()
    acknowledged(cluster, cluster.batch(sequence=3), 3)


@CASES.breaks(NothingLost, "acknowledged .* at 1, but there is")
def an_acknowledgement_at_another_offset(cluster: Orders) -> None:
    acknowledged(cluster, cluster.batch(sequence=2), 1)


@CASES.breaks(NothingLost, "is what is left, but its LEO is 1, but 3 is committed")
def an_end_without_what_was_committed(cluster: Orders) -> None:
    cluster.log(cluster.leader).truncate_to(1, allow_below_hw=True)
    cluster.go(1_000)
    cluster.at_end()


# --- 31: fetchers


@CASES.breaks(FetcherValidity, r"is fetched from None by the fetchers \(leader, leader epoch\) \[\], should be by \[\(")
def followers_that_do_not_fetch(cluster: Orders) -> None:
    for node in cluster.cluster.brokers:
        assert node.node is not None and node.node.broker is not None
        node.node.broker.replicas._fetchers.follow = lambda *args: None  # type: ignore[method-assign]
    cluster.kill_leader()
    cluster.go(1_000)


@CASES.breaks(FetcherValidity, "which (leads|follows) in leader epoch 1, is fetched from")
def a_leader_that_goes_on_fetching(cluster: Orders) -> None:
    for node in cluster.cluster.brokers:
        assert node.node is not None and node.node.broker is not None
        node.node.broker.replicas._fetchers.forget = lambda partition: None  # type: ignore[method-assign]
    cluster.kill_leader()
    cluster.go(1_000)


def answered(cluster: Orders, asked_epoch: int, target: SimHost) -> None:
    request = cluster.ask_fetch(asked_epoch)
    result = ReplicaFetchResult(topic_id=cluster.key.topic_id, partition=0, error=ErrorCode.NONE, high_watermark=3)
    response = ReplicaFetchResponse(error=ErrorCode.NONE, session_id=1, partitions=(result,), payload=b"")
    cluster._tell(lambda it: it.on_call(cluster.follower.node_id, target.node_id, REPLICA_FETCH, request))
    cluster._tell(lambda it: it.on_answer(cluster.follower.node_id, target.node_id, REPLICA_FETCH, request, response))
    cluster.go(1)


@CASES.breaks(FetcherValidity, "in leader epoch 0 and was answered .* was in epoch 1 already")
def a_fetch_of_an_old_epoch_that_is_answered(cluster: Orders) -> None:
    cluster.kill_leader()
    answered(cluster, 0, cluster.leader)


@CASES.breaks(FetcherValidity, "in leader epoch 5 and was answered .* is still in epoch 0")
def a_fetch_of_a_later_epoch_that_is_answered(cluster: Orders) -> None:
    answered(cluster, 5, cluster.leader)


@CASES.breaks(FetcherValidity, "but that node does not lead in it")
def a_fetch_that_a_follower_answers(cluster: Orders) -> None:
    answered(cluster, 0, cluster.follower)


# --- 32: the HW


@CASES.breaks(SelfCheckReplicas, "the replica on node .* <= HW 9 <= LEO 3")
def a_replica_that_contradicts_itself(cluster: Orders) -> None:
    cluster.log(cluster.follower)._ctx.hw = 9
    cluster.go(1_000)


@CASES.breaks(SelfCheckReplicas, "a produce waits for the HW|the progress is of|is not in its ISR")
def a_leader_that_forgets_its_followers(cluster: Orders) -> None:
    leader = cluster.leader
    assert leader.node is not None and leader.node.broker is not None
    partition = leader.node.broker.replicas.partition(TP)
    assert partition is not None and partition.leader is not None
    partition.leader.followers.clear()
    cluster.produce()


@CASES.breaks(AppliedHw, "raises its HW from 2 to 3 by an answer that only says where the logs part")
def a_hw_that_comes_with_a_divergence(cluster: Orders) -> None:
    node = cluster.follower
    cluster.cluster.network.cut(node.node_id, cluster.leader.node_id)
    log = cluster.log(node)
    log._ctx.hw = 2
    cluster.go(1_000)
    node.on_event(node, Diverged(tp=TP, epoch=0, end_offset=3, old_leo=4, leo=3))
    log.update_hw(3)
    cluster.go(1_000)


@CASES.breaks(AppliedHw, "the HW 9 and the LEO 3")
def a_hw_beyond_the_leo(cluster: Orders) -> None:
    cluster.log(cluster.follower)._ctx.hw = 9
    cluster.go(1_000)


@CASES.breaks(AppliedHw, "had the HW 3 and has 1")
def a_leaders_hw_that_goes_back(cluster: Orders) -> None:
    cluster.log(cluster.leader).update_hw(1)
    cluster.go(1_000)


@CASES.breaks(AppliedHw, "has the HW 4, no leader had more than 3")
def a_follower_with_a_hw_of_its_own(cluster: Orders) -> None:
    cluster.only_leader_writes()
    log = cluster.log(cluster.follower)
    copy = bytearray(cluster.log(cluster.leader).read(3, 1_000, up_to=4))
    stamp(copy, 3, 0)
    log.append_as_follower(bytes(copy))
    log.update_hw(4)
    cluster.go(1_000)


@CASES.breaks(AppliedHw, "tells the latest offset 4, in this or an older leader epoch it was 100")
def a_latest_offset_below_an_older_one(cluster: Orders) -> None:
    replica_facts(cluster.world).truths[cluster.key].hw_by_epoch[-1] = 100
    cluster.produce()


# --- 33: liveness


@CASES.breaks(ReplicationLiveness, "node . does not run")
def a_broker_that_is_down_at_the_end(cluster: Orders) -> None:
    cluster.kill(cluster.follower.node_id)
    cluster.at_end()


@CASES.breaks(ReplicationLiveness, "is registered as BrokerRegistration")
def a_broker_that_stays_fenced(cluster: Orders) -> None:
    cluster.cut_off(cluster.follower.node_id)
    cluster.go(10_000)
    cluster.at_end()


@CASES.breaks(ReplicationLiveness, "no verdict for the produces")
def a_produce_that_waits_for_ever(cluster: Orders) -> None:
    cluster.partition(cluster.leader).hw_changed = lambda hw: None  # type: ignore[method-assign]
    with pytest.raises(Exception, match="timed out"):
        cluster.do(
            cluster.client.call(
                Endpoint(f"n{cluster.leader.node_id}", 9092), PRODUCE, ProduceAsk(TP, -1, 60_000, cluster.batch()), 1_000
            )
        )
    cluster.at_end()


@CASES.breaks(ReplicationLiveness, "got a verdict and was not waiting")
def a_second_verdict(cluster: Orders) -> None:
    leader = cluster.leader
    leader.on_event(leader, ProduceCompleted(tp=TP, id="p1", base=0, error=None))
    cluster.go(1)


@CASES.breaks(ReplicationLiveness, "orders-0 is PartitionRegistration")
def an_isr_that_stays_small(cluster: Orders) -> None:
    cluster.world.faults_over = True
    cluster.go(1_000)
    for node in cluster.cluster.brokers:
        cluster.partition(node)._maybe_expand = lambda *args, **kwargs: None  # type: ignore[method-assign]
    cluster.cut_off(cluster.follower.node_id)
    cluster.until(lambda: len(cluster.isr) == 2)
    cluster.cluster.network.heal()
    cluster.go(10_000)
    cluster.at_end()


# --- producers and stopping


@CASES.breaks(ProducerStateKept, "the next sequence is 3")
def a_sequence_twice(cluster: Orders) -> None:
    producers = cluster.log(cluster.leader)._ctx.producers
    silent = dict.fromkeys(("duplicate_of", "check_batch"), lambda self, header: None)
    producers.__class__ = type("Silent", (type(producers),), {"__slots__": (), **silent})
    cluster.sequence = 1
    cluster.produce()


@CASES.breaks(ProducerStateKept, "of producer 7, its last batch is")
def producers_that_are_not_rebuilt(cluster: Orders) -> None:
    log = cluster.log(cluster.follower)
    producers = dict(log._ctx.producers.items())
    log.truncate_to(1, allow_below_hw=True)
    log._ctx.producers.restore(producers.items())
    cluster.go(1_000)


@CASES.breaks(ProducerStateKept, "remembers the producers .*, of whom it has no batch")
def producers_without_a_batch(cluster: Orders) -> None:
    log = cluster.log(cluster.follower)
    log.truncate_fully_and_start_at(0)
    log._ctx.producers.append_batch(parse_header(cluster.batch()), 0, 0)
    cluster.go(1_000)


@CASES.breaks(ControlledShutdown, "goes without having been let go")
def a_broker_that_does_not_wait(cluster: Orders) -> None:
    leader = cluster.leader
    assert leader.node is not None and leader.node.broker is not None

    async def at_once() -> None:
        return None

    leader.node.broker.lifecycle.wait_finished = at_once  # type: ignore[method-assign]

    async def stop() -> None:
        stopping = leader.stop()
        assert stopping is not None
        await stopping

    cluster.do(stop())


def let_go(cluster: Orders, node: SimHost) -> None:
    known = replica_facts(cluster.world).metadata.history.latest.brokers[node.node_id]
    request = BrokerHeartbeatRequest(
        broker_id=node.node_id,
        broker_epoch=known.broker_epoch,
        current_metadata_offset=0,
        want_fence=False,
        want_shut_down=True,
        offline_log_dirs=(),
    )
    response = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False, should_shut_down=True)
    cluster._tell(lambda it: it.on_answer(node.node_id, NodeId(1), BROKER_HEARTBEAT, request, response))
    cluster.go(1)


@CASES.breaks(ControlledShutdown, r"lets node . go, which leads \['orders-0'\]")
def a_leader_that_is_let_go(cluster: Orders) -> None:
    let_go(cluster, cluster.leader)


@CASES.breaks(ControlledShutdown, "has applied the metadata log up to")
def a_broker_that_is_let_go_before_everyone_knows(cluster: Orders) -> None:
    leaving = cluster.leader
    cluster.cluster.network.cut(cluster.follower.node_id, NodeId(1))
    cluster.go(200)

    async def begin() -> None:
        leaving.stop()

    cluster.do(begin())
    cluster.until(lambda: leaving.node_id not in cluster.isr)
    let_go(cluster, leaving)


@CASES.breaks(ControlledShutdown, r"lets broker . go at once, which is unfenced and leads \['orders-0'\]")
def a_leader_that_is_fenced_instead(cluster: Orders) -> None:
    controller, leader = cluster.node(1), cluster.leader
    controller.on_event(controller, BrokerMoved(broker_id=leader.node_id, broker_epoch=1, old="unfenced", new="shutdown_now"))
    cluster.go(1)


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(
    make: Callable[..., Orders], checker: CheckerFactory, violate: Callable[[Orders], Any], words: str
) -> None:
    assert_found(make(checker), checker, violate, words)


# --- what may be lost


def test_a_replica_that_lost_bytes_is_tainted_until_it_is_out_of_the_isr(make: Callable[..., Orders]) -> None:
    cluster = make(*REPLICATION_AND_HISTORY)
    lossy = cluster.follower
    cluster.power_cut(lossy, ["/data/orders-0/00000000000000000000.log"])
    assert cluster.world.losses.tainted == {TP: {lossy.node_id}}
    cluster.until(lambda: lossy.node_id not in cluster.isr)
    assert cluster.world.losses.tainted == {TP: {lossy.node_id}}
    cluster.boot(lossy.node_id)
    assert cluster.world.losses.tainted == {TP: set()}
    cluster.until(lambda: lossy.node_id in cluster.isr)
    assert not cluster.world.losses.excused


def test_the_last_known_leader_that_lost_bytes_is_excused(make: Callable[..., Orders]) -> None:
    cluster = make(*REPLICATION_AND_HISTORY)
    lossy = cluster.leader
    others = [node.node_id for node in cluster.cluster.brokers if node is not lossy]
    for other in others:
        cluster.kill(other)
    cluster.until(lambda: cluster.isr == (lossy.node_id,))
    cluster.produce()
    never_flushed = "/data/orders-0/00000000000000000000.log"
    cluster.power_cut(lossy, [never_flushed])
    lossy.disk.write_file_atomically(never_flushed, b"")
    cluster.boot(lossy.node_id)
    cluster.until(lambda: cluster.world.losses.excused)
    assert f"unclean election of node {lossy.node_id}" in cluster.world.losses.excused[TP]
    assert cluster.world.losses.tainted == {TP: set()}
    cluster.until(lambda: any(it.leader is not None for it in cluster.views.values()) and cluster.leader is lossy)
    cluster.produce()
    for other in others:
        cluster.boot(other)
    cluster.until(lambda: {(it.leo, it.hw) for it in cluster.views.values()} == {(1, 1)})
    assert len(cluster.views) == 3


def test_an_unclean_election_is_excused(make: Callable[..., Orders]) -> None:
    cluster = make(*REPLICATION_AND_HISTORY)
    last = cluster.leader
    heir = cluster.follower.node_id
    for node in cluster.cluster.brokers:
        if node is not last:
            cluster.kill(node.node_id)
    cluster.until(lambda: cluster.isr == (last.node_id,))
    cluster.produce()
    cluster.kill(last.node_id)
    cluster.boot(heir)
    cluster.write(
        ConfigRecord(resource_type=TOPIC, resource_name="orders", name=UNCLEAN, value="true"),
        PartitionChangeRecord(topic_id=cluster.key.topic_id, partition=0, isr=(heir,), leader=heir, recovering=True),
    )
    assert "unclean election of node" in cluster.world.losses.excused[TP]
    cluster.until(lambda: cluster.views and cluster.leader.node_id == heir)
    cluster.boot(last.node_id)
    cluster.until(lambda: len(cluster.views) == 2 and {it.leo for it in cluster.views.values()} == {3})


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data/orders-0/00000000000000000000.log", TP),
        ("/data/orders-0", TP),
        ("/data/a-b-12/00000000000000000000.log", TopicPartition("a-b", 12)),
        ("/data/orders-0/00000000000000000000.index", None),
        ("/data/orders-0/leader-epoch-checkpoint", None),
        ("/data/orders-0/00000000000000000007.log.deleted", None),
        ("/data/orders-0.0123456789abcdef-delete/00000000000000000000.log", None),
        ("/data/replication-offset-checkpoint", None),
        ("/data/__cluster_metadata-0/00000000000000000000.log", None),
        ("/elsewhere/orders-0/00000000000000000000.log", None),
    ],
)
def test_what_is_lost_with_a_path(path: str, expected: TopicPartition | None) -> None:
    assert partition_of(path, ("/data",)) == expected


def test_the_keeper_says_when_it_fell_behind(make: Callable[..., Orders]) -> None:
    cluster = make()
    replica_facts(cluster.world).metadata.committed_end -= 1
    with pytest.raises(Violation, match="the checkers know the metadata log up to"):
        cluster.at_end()


def test_a_liveness_violation_is_told_apart(make: Callable[..., Orders]) -> None:
    cluster = make(ReplicationLiveness)
    cluster.kill(cluster.follower.node_id)
    with pytest.raises(LivenessViolation):
        cluster.at_end()


def test_no_violation_where_all_is_well(make: Callable[..., Orders]) -> None:
    cluster = make(*REPLICATION_AND_HISTORY)
    cluster.kill_leader()
    cluster.produce()
    for node in cluster.cluster.brokers:
        if not node.running:
            cluster.boot(node.node_id)
    cluster.until(lambda: len(cluster.isr) == 3)

    async def stop() -> None:
        stopping = cluster.leader.stop()
        assert stopping is not None
        await stopping

    stopped = cluster.leader
    cluster.do(stop())
    cluster._tell(lambda it: it.on_death(stopped, "stopped"))
    cluster.until(lambda: cluster.views and cluster.leader is not stopped)
    cluster.produce()
    cluster.boot(stopped.node_id)
    cluster.until(lambda: len(cluster.isr) == 3)
    cluster.until(lambda: {(it.leo, it.hw) for it in cluster.views.values()} == {(5, 5)})
    cluster.world.faults_over = True
    cluster.go(1_000)
    cluster.at_end()
    assert replica_facts(cluster.world).truths[cluster.key].hw == 5
    assert not cluster.failures
