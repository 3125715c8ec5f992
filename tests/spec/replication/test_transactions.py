"""TP-03 to TP-12: who is asked before a batch begins a transaction in a partition."""

from __future__ import annotations

import asyncio

import pytest

from kraftlite.log.log import AppendOrigin
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.replication.api import ProduceEntry, ProduceResult
from kraftlite.replication.enrol_driver import TURN_WAIT_MS, Identity
from tests.harness.replication_cluster import TOPIC_ID, TP, make_batch
from tests.harness.transactions import OTHER, OTHER_ID, GatedCluster, Lease, errors, mark, marker, txn_batch


async def test_tx_67_how_long_coordinators_take_to_answer_and_what_they_refuse() -> None:
    async with GatedCluster(code=None) as c:
        numbers = c[1].manager.enroller.verifications
        c.send(txn_batch(), (OTHER, txn_batch()))
        await c.settle()
        assert (numbers.count, numbers.total_ms, numbers.failures) == (0, 0, 0)
        c[1].clock.advance(30)
        c.gate.questions[0].answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        await c.settle()
        assert (numbers.count, numbers.total_ms, numbers.failures) == (1, 30, 2)
        c.send(txn_batch())
        await c.settle()
        c.gate.questions[1].answer()
        await c.settle()
        assert (numbers.count, numbers.total_ms, numbers.failures) == (2, 30, 2)


@pytest.mark.parametrize(("version", "add"), [(0, False), (1, False), (2, True)])
async def test_tp_03_the_coordinator_is_asked_before_the_first_batch_and_not_again(version: int, add: bool) -> None:
    lease = Lease()
    async with GatedCluster(code=None) as c:
        done = c.send(txn_batch(), (OTHER, txn_batch()), version=version, lease=lease)
        await c.settle()
        assert not done and c[1].log().leo == 0 and (lease.held, lease.released) == (1, 0)
        (question,) = c.gate.questions
        assert (question.transactional_id, question.producer_id, question.producer_epoch) == ("t", 7, 0)
        assert question.partitions == (TP, OTHER) and question.add is add
        assert question.topic_ids == {TP: TOPIC_ID, OTHER: OTHER_ID}, "as they are led here"
        question.answer()
        await c.settle()
        assert errors(done) == [ErrorCode.NONE] * 2 and lease.released == 1
        assert errors(c.send(txn_batch(seq=1), version=version)) == [ErrorCode.NONE], "it is open: at once"
        assert len(c.gate.questions) == 1


async def test_tp_03_verification_can_be_left_out_and_adding_cannot() -> None:
    async with GatedCluster(code=None) as c:
        c[1].manager.enroller.verifies = False
        assert errors(c.send(txn_batch(), version=0)) == [ErrorCode.NONE] and not c.gate.questions
        done = c.send(txn_batch(pid=8), version=2)
        await c.settle()
        assert not done and len(c.gate.questions) == 1


async def test_tp_03_a_request_without_transactional_batches_asks_nobody() -> None:
    async with GatedCluster(code=None) as c:
        assert errors(c.send(make_batch(["a"]), version=2)) == [ErrorCode.NONE] and not c.gate.questions


async def test_tp_04_a_marker_between_question_and_answer_refuses_the_batch() -> None:
    async with GatedCluster(code=None) as c:
        done = c.send(txn_batch())
        await c.settle()
        mark(c[1], marker(commit=False))
        c.gate.questions[0].answer()
        await c.settle()
        assert errors(done) == [ErrorCode.INVALID_TXN_STATE] and c[1].log().leo == 1


async def test_tp_04_a_leadership_that_ends_and_comes_back_while_the_coordinator_is_asked() -> None:
    async with GatedCluster(3, code=None) as c:
        done = c.send(txn_batch())
        await c.settle()
        for leader in (2, 1):
            c.controller.elect(c[leader].id)
            c.publish()
        c.gate.questions[0].answer()
        await c.settle()
        assert errors(done) == [ErrorCode.NOT_LEADER_OR_FOLLOWER], "which the producer tries again"
        again = c.send(txn_batch())
        await c.settle()
        c.gate.questions[1].answer()
        await c.settle()
        assert errors(again) == [ErrorCode.NONE]


async def test_tp_03_a_leadership_that_begins_while_the_coordinator_is_asked_about_another_partition() -> None:
    """Nobody was asked about this one: its producer comes again, and is asked about then."""
    for version in (0, 2):
        async with GatedCluster(3, code=None) as c:
            c.controller.elect(c[2].id)
            c.publish()
            done = c.send((OTHER, txn_batch()), txn_batch(), version=version)
            await c.settle()
            (question,) = c.gate.questions
            assert question.partitions == (OTHER,)
            c.controller.elect(c[1].id)
            c.publish()
            question.answer()
            await c.settle()
            assert errors(done) == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER] and c[1].log().leo == 0


async def test_tp_06_a_stale_epoch_is_told_without_asking() -> None:
    async with GatedCluster(code=None) as c:
        mark(c[1], marker(epoch=3))
        assert errors(c.send(txn_batch(epoch=2))) == [ErrorCode.INVALID_PRODUCER_EPOCH] and not c.gate.questions


E = ErrorCode
TRANSLATED = [
    (E.NETWORK_EXCEPTION, E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS),
    (E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS),
    (E.COORDINATOR_NOT_AVAILABLE, E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS),
    (E.NOT_COORDINATOR, E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS),
    (E.CONCURRENT_TRANSACTIONS, E.NOT_ENOUGH_REPLICAS, E.CONCURRENT_TRANSACTIONS),
    (E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_EPOCH),
    (E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING),
    (E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
    (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
]


@pytest.mark.parametrize(("answer", "verified", "added"), TRANSLATED, ids=lambda it: it.name)
async def test_tp_07_answers_as_a_producer_sees_them(answer: ErrorCode, verified: ErrorCode, added: ErrorCode) -> None:
    """A partition that is refused does not hinder the others of the request."""
    for version, expected in ((0, verified), (2, added)):
        async with GatedCluster(code=None) as c:
            done = c.send((OTHER, txn_batch()), txn_batch(), make_batch(["plain"]), version=version)
            while not done:
                await c.settle()
                if len(c.gate.questions) and not c.gate.questions[-1].answered.done():
                    c.gate.questions[-1].answer(payments=answer)
                c.clock.advance(20)
            assert errors(done) == [expected, ErrorCode.NONE, ErrorCode.NONE]
            assert c[1].log(OTHER).leo == 0 and c[1].log().leo == 2


async def test_tp_07_a_client_that_does_not_know_transaction_abortable() -> None:
    async with GatedCluster(code=E.TRANSACTION_ABORTABLE) as c:
        done = c.send(txn_batch(), abortable=False)
        await c.settle()
        assert errors(done) == [E.INVALID_TXN_STATE]


async def test_tp_07_without_a_way_to_the_coordinator_the_producer_tries_again() -> None:
    async with GatedCluster() as c:
        c.gate.error = ApiError(E.NOT_COORDINATOR)
        refused = c.send(txn_batch())
        await c.settle()
        c[1].manager.enroller.gate = None
        unasked = c.send(txn_batch())
        await c.settle()
        assert errors(refused) == errors(unasked) == [E.NOT_ENOUGH_REPLICAS]


async def test_tp_07_a_partition_without_an_answer_is_not_taken() -> None:
    async with GatedCluster(code=None) as c:
        done = c.send(txn_batch())
        await c.settle()
        c.gate.questions[0].answered.set_result({})
        await c.settle()
        assert errors(done) == [E.NOT_ENOUGH_REPLICAS] and c[1].log().leo == 0


async def test_tp_08_the_leader_asks_again_while_the_transaction_before_is_completed() -> None:
    async with GatedCluster(code=E.CONCURRENT_TRANSACTIONS) as c:
        done = c.send(txn_batch(epoch=1), version=2)
        await c.clock.run_for(19)
        assert len(c.gate.questions) == 1
        await c.clock.run_for(1)
        assert len(c.gate.questions) == 2
        mark(c[1], marker(epoch=1, version=2))
        c.gate.code = E.NONE
        await c.clock.run_for(20)
        assert errors(done) == [E.NONE] and len(c.gate.questions) == 3


async def test_tp_08_it_gives_up_after_100_ms_and_below_version_2_at_once() -> None:
    async with GatedCluster(code=E.CONCURRENT_TRANSACTIONS) as c:
        done = c.send(txn_batch(), version=2)
        await c.clock.run_for(99)
        assert not done
        await c.clock.run_for(1)
        assert errors(done) == [E.CONCURRENT_TRANSACTIONS] and len(c.gate.questions) == 6
        done = c.send(txn_batch(pid=8), version=0, transactional_id="other")
        await c.settle()
        assert errors(done) == [E.NOT_ENOUGH_REPLICAS]


async def test_tp_09_one_question_of_an_id_at_a_time_and_one_that_waits() -> None:
    async with GatedCluster(code=None) as c:
        asked = [c.send(txn_batch(pid=1, seq=seq), transactional_id="a") for seq in (0, 1)]
        other = c.send(txn_batch(pid=9), transactional_id="b")
        await c.settle()
        assert [it.transactional_id for it in c.gate.questions] == ["a", "b"], "another id does not wait"
        asked.append(c.send(txn_batch(pid=1, seq=2), transactional_id="a"))
        await c.settle()
        assert errors(asked[1]) == [E.NOT_ENOUGH_REPLICAS], "the same epoch came again: the older one tries again"
        newer = c.send(txn_batch(pid=1, epoch=2), transactional_id="a")
        await c.settle()
        assert errors(asked[2]) == [E.INVALID_PRODUCER_EPOCH], "a newer epoch fences it"
        older = c.send(txn_batch(pid=1, epoch=1), transactional_id="a")
        await c.settle()
        assert errors(older) == [E.INVALID_PRODUCER_EPOCH], "an older one is refused at once"
        assert len(c.gate.questions) == 2
        c.gate.questions[0].answer()
        await c.settle()
        assert errors(asked[0]) == [E.INVALID_PRODUCER_EPOCH] and c.gate.questions[2].producer_epoch == 2
        c.gate.questions[2].answer()
        c.gate.questions[1].answer()
        await c.settle()
        assert errors(newer) == errors(other) == [E.NONE]


async def test_tp_09_an_older_epoch_waits_for_no_turn_of_another_partition() -> None:
    """The guards of one partition know nothing of the other: the rule of the queue is what refuses."""
    async with GatedCluster(code=None) as c:
        c.send(txn_batch(pid=1))
        await c.settle()
        newer = c.send(txn_batch(pid=1, epoch=2))
        await c.settle()
        older = c.send((OTHER, txn_batch(pid=1, epoch=1)))
        await c.settle()
        assert errors(older) == [E.INVALID_PRODUCER_EPOCH] and not newer


async def test_tp_09_the_epochs_of_another_producer_id_fence_nobody() -> None:
    """Behind the last epoch, and behind an id that has expired, the next producer id begins with epoch 0 (TX-17, TX-63)."""
    async with GatedCluster(code=None) as c:
        c.send(txn_batch(pid=1, epoch=9))
        await c.settle()
        late = c.send(txn_batch(pid=1, epoch=9, seq=1))
        await c.settle()
        fresh = c.send((OTHER, txn_batch(pid=2, epoch=0)))
        await c.settle()
        assert errors(late) == [E.NOT_ENOUGH_REPLICAS] and not fresh
        c.gate.questions[0].answer(E.INVALID_PRODUCER_ID_MAPPING)
        await c.settle()
        assert c.gate.questions[1].producer_id == 2
        c.gate.questions[1].answer()
        await c.settle()
        assert errors(fresh) == [E.NONE]


async def test_tp_09_who_goes_away_while_it_waits_leaves_the_turn_to_others() -> None:
    async with GatedCluster(code=None) as c:
        enroller = c[1].manager.enroller
        asked = [asyncio.ensure_future(enroller.ask(Identity("a", 1, 0), (TP,), adds=False)) for _ in range(2)]
        await c.settle()
        asked[1].cancel()
        await c.settle()
        asked.append(asyncio.ensure_future(enroller.ask(Identity("a", 1, 0), (TP,), adds=False)))
        await c.settle()
        c.gate.questions[0].answer()
        asyncio.get_running_loop().call_soon(asked[2].cancel)  # between being told of its turn and taking it
        await c.settle()
        c.gate.code = E.NONE
        assert await asyncio.wait_for(enroller.ask(Identity("a", 1, 0), (TP,), adds=False), 5) == {TP: E.NONE}


async def test_tp_09_a_turn_is_not_waited_for_as_long_as_an_answer_that_is_lost() -> None:
    """Who waits holds its connection up: it is asked for after a while, and its id is not stuck till the lost one is given up."""
    async with GatedCluster(code=None) as c:
        lease = Lease()
        lost = c.send(txn_batch(pid=1), transactional_id="a")
        await c.settle()
        waits = c.send(txn_batch(pid=1), transactional_id="a", lease=lease)
        await c.clock.run_for(TURN_WAIT_MS - 1)
        assert (waits, lease.held, lease.released) == ([], 1, 0) and len(c.gate.questions) == 1
        await c.clock.run_for(1)
        assert len(c.gate.questions) == 2
        after = c.send(txn_batch(pid=1, seq=1), transactional_id="a")
        await c.settle()
        assert len(c.gate.questions) == 2, "the next one waits for the second"
        c.gate.questions[0].answer(E.NETWORK_EXCEPTION)
        await c.settle()
        assert errors(lost) == [E.NOT_ENOUGH_REPLICAS] and len(c.gate.questions) == 2, "and not for the one that was lost"
        c.gate.questions[1].answer()
        await c.settle()
        assert errors(waits) == [E.NONE] and lease.released == 1
        c.gate.questions[2].answer()
        await c.settle()
        assert errors(after) == [E.NONE]


async def test_tp_09_an_answer_that_comes_behind_the_next_one_changes_no_order() -> None:
    async with GatedCluster(code=None) as c:
        late = c.send(txn_batch(pid=1), transactional_id="a")
        await c.settle()
        again = c.send(txn_batch(pid=1), transactional_id="a")
        await c.clock.run_for(TURN_WAIT_MS)
        c.gate.questions[1].answer()
        await c.settle()
        assert errors(again) == [E.NONE]
        c.gate.questions[0].answer()
        await c.settle()
        assert errors(late) == [E.NONE] and c[1].log().leo == 1, "it is the same batch"


async def test_tp_10_a_higher_sequence_is_not_taken_while_the_lower_one_must_come_again() -> None:
    """KAFKA-14920: the first batch could not be verified, the second one can."""
    async with GatedCluster(code=E.NOT_COORDINATOR) as c:
        first = c.send(txn_batch("a", "b"))
        await c.settle()
        c.gate.code = E.NONE
        second = c.send(txn_batch(seq=2))
        await c.settle()
        assert errors(first) == [E.NOT_ENOUGH_REPLICAS] and errors(second) == [E.OUT_OF_ORDER_SEQUENCE_NUMBER]
        for batch in (txn_batch("a", "b"), txn_batch(seq=2)):
            done = c.send(batch)
            await c.settle()
            assert errors(done) == [E.NONE]


async def test_tp_10_a_refusal_for_good_leaves_no_guard() -> None:
    async with GatedCluster(code=E.INVALID_PRODUCER_ID_MAPPING) as c:
        refused = c.send(txn_batch(epoch=9))
        await c.settle()
        c.gate.code = E.NONE
        done = c.send(txn_batch(epoch=2))
        await c.settle()
        assert errors(refused) == [E.INVALID_PRODUCER_ID_MAPPING] and errors(done) == [E.NONE]


async def test_tp_12_a_duplicate_in_an_open_transaction_is_answered_without_asking() -> None:
    async with GatedCluster() as c:
        for batch in (txn_batch(), txn_batch()):
            done = c.send(batch)
            await c.settle()
            assert errors(done) == [E.NONE] and done[0].base_offset == 0
        assert len(c.gate.questions) == 1 and c[1].log().leo == 1


async def test_tp_04_a_coordinator_asks_for_its_own_batch() -> None:
    async with GatedCluster(code=None) as c:
        identity = Identity("t", 7, 0)

        async def write() -> ErrorCode:
            try:
                terms = await c[1].manager.enroller.enrol(identity, TP, version=2)
            except ApiError as error:
                return error.code
            entry = ProduceEntry(tp=TP, topic_id=None, records=txn_batch(seq=-1), terms=terms)
            done: list[ProduceResult] = []
            c[1].manager.append([entry], acks=1, timeout_ms=1_000, on_done=done.extend, origin=AppendOrigin.COORDINATOR)
            return done[0].error

        first = asyncio.ensure_future(write())
        await c.settle()
        assert c.gate.questions[0].add
        c.gate.questions[0].answer(E.COORDINATOR_LOAD_IN_PROGRESS)
        assert await first is E.COORDINATOR_LOAD_IN_PROGRESS
        second = asyncio.ensure_future(write())
        await c.settle()
        c.gate.questions[1].answer()
        assert await second is E.NONE
        assert await write() is E.NONE and len(c.gate.questions) == 2
