"""Transactions, the rarer parts: questions that meet markers, the end of the epochs, expiries, requests that wait, pieces."""

from __future__ import annotations

from kraftlite.broker.handlers import transactions
from kraftlite.coordinator.core import walks
from kraftlite.coordinator.transactions import rules
from kraftlite.coordinator.transactions.shard_core import TransactionShard
from kraftlite.coordinator.transactions.states import Transaction
from kraftlite.log.guards import Guards
from kraftlite.log.producers import ProducerState
from kraftlite.replication.partition import Partition
from kraftlite.sim.services import hanging
from kraftlite.sim.workloads import transaction_settings
from kraftlite.sim.workloads import transactions as workload
from kraftlite.sim.workloads.transaction_hanging import Administrator
from kraftlite.sim.workloads.transaction_instance import Instance
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.lenses import playing
from tests.sim.mutants.patching import Patch
from tests.sim.mutants.scenes import deposed_while_asking

# --- questions and markers


@mutant(
    "guard-cleared-by-the-one-before",
    "the marker of a transaction takes the guard of the next one away",
    expects=("72",),
    scene="marker-comes-twice",
)
def guard_cleared_by_the_one_before(patch: Patch) -> None:
    """KAFKA-18575, KAFKA-18654: with an epoch for each transaction the marker bears that of the next one."""
    patch.edit(
        Guards,
        "end",
        ("if guard is not None and not (guard.adds and guard.producer_epoch == producer_epoch):", "if guard is not None:"),
    )


@mutant(
    "guard-before-epoch",
    "a batch of a fenced producer is told that it is in no transaction",
    expects=("72",),
    scene="answer-comes-late",
)
def guard_before_epoch(patch: Patch) -> None:
    """KAFKA-19690: the producer takes for fatal what it could go on behind."""
    patch.edit(
        ProducerState,
        "check_terms",
        (
            "self.check_epoch(header)\n        self.guards.check(header, terms.guard, leader_epoch)",
            "self.guards.check(header, terms.guard, leader_epoch)\n        self.check_epoch(header)",
        ),
    )


@mutant(
    "guard-outlives-its-leadership",
    "what was asked under an earlier leadership lets a batch in under a later one of the same broker",
    expects=("SelfCheckReplicas", "14", "66"),
    shape="1+3",
    lens=playing(deposed_while_asking),
)
def guard_outlives_its_leadership(patch: Patch) -> None:
    """TP-04, KAFKA-14884's class: another leader has the marker that ended the transaction, which took no guard away here."""
    patch.edit(Partition, "_role_changed", ("self.log.drop_guards()", "pass"))


def _all_pipeline(patch: Patch) -> None:
    """Every producer sends several batches at once, and not a quarter of the time."""
    before = "if self.rng.randrange(4) == 0:\n                await self._send_several"
    patch.edit(Instance, "fill", (before, before.replace("self.rng.randrange(4) == 0", "True")))


@mutant(
    "second-batch-comes-first",
    "a batch is appended though the one before it waits for its transaction",
    expects=("72",),
    scene="first-question-fails",
    lens=_all_pipeline,
)
def second_batch_comes_first(patch: Patch) -> None:
    """KAFKA-14920: of a producer that the partition does not know any sequence is taken, and the first batch never is."""
    patch.edit(Guards, "check_sequence", ("if header.base_sequence > lowest:", "if False:"))


@mutant(
    "verified-when-idle",
    "a partition is not verified while its transaction gets another one, or ends",
    expects=("72",),
)
def verified_when_idle(patch: Patch) -> None:
    """KAFKA-14904: producers are sent away again and again."""
    patch.edit(rules, "verify", ("pending_matters=False", "pending_matters=True"))


@mutant(
    "ended-by-the-version-it-began-with",
    "the markers of a transaction have the version by which it was begun",
    expects=("66", "liveness"),
)
def ended_by_the_version_it_began_with(patch: Patch) -> None:
    """KIP-890: an end of version 0 leaves the epoch, and no partition takes a marker of version 2 in it: Prepare for ever."""
    patch.edit(rules, "_prepared", ("updated_ms=now_ms, version=version)", "updated_ms=now_ms)"))


# --- the end of the epochs


@mutant("last-epoch-is-given-out", "the epoch behind the last one is given to a producer", expects=("65", "69"))
def last_epoch_is_given_out(patch: Patch) -> None:
    """KIP-360: nothing is left to fence it with, and the next epoch is negative."""
    patch.edit(Transaction, "exhausted", ("self.producer_epoch >= LAST_EPOCH", "self.producer_epoch > LAST_EPOCH"))


@mutant("next-id-keeps-the-epoch", "the producer id behind the last epoch goes on in that epoch", expects=("65", "66"))
def next_id_keeps_the_epoch(patch: Patch) -> None:
    """KIP-890: the producer is told epoch 0, and nobody takes it."""
    patch.edit(rules, "complete", ("producer_epoch=0,", "producer_epoch=LAST_EPOCH,"))


@mutant(
    "next-id-is-forgotten",
    "a transaction in the last epoch ends without the next producer id",
    expects=("65", "66", "68", "liveness"),
)
def next_id_is_forgotten(patch: Patch) -> None:
    """KIP-890: the epoch that is left is for fencing, and the producer is given it."""
    patch.edit(rules, "_next_of_2", ("next_producer_id = drawn", "pass"))


def _soon_at_the_end(patch: Patch) -> None:
    """Ids begin in their last epoch, and not in a quarter of the runs. There each transaction waits for its timeout, and its
    producer asks for its next epoch behind that."""
    before = "rng.choice((32_767, 32_767, 32_767, rng.choice((1, 2, 5, 20))))"
    patch.edit(transaction_settings, "_epochs", (before, "1"))
    patch.edit(Instance, "__init__", ("self._recovering.randrange(3) == 0", "True"))
    patch.edit(
        Instance,
        "transact",
        ("odd = self.rng.randrange(12)", "odd = self.rng.randrange(12 if self.producer.producer_epoch < 32_000 else 1)"),
    )


@mutant(
    "goes-on-in-the-fencing-epoch",
    "who was aborted in its last epoch goes on in the one that is for fencing",
    expects=("65", "69"),
    lens=_soon_at_the_end,
)
def goes_on_in_the_fencing_epoch(patch: Patch) -> None:
    """KIP-360, KIP-890: behind a timeout a producer gets the next epoch, and of the last one there is none."""
    patch.edit(rules, "abort_fenced", ("fenced.producer_epoch == FENCING_EPOCH", "False"))


# --- expiries


def _all_forget(patch: Patch) -> None:
    """Producers that are quiet are forgotten in every run, and not in an eighth of them."""
    patch.edit(transaction_settings, "_forgetful", ("if rng.randrange(8):", "if False:"))


@mutant(
    "open-transaction-expires",
    "a producer that was quiet for long is forgotten with its open transaction",
    expects=("67", "66", "ProducerStateKept"),
    lens=_all_forget,
)
def open_transaction_expires(patch: Patch) -> None:
    """LG-21: the marker ends nothing, and the records are never decided."""
    patch.edit(ProducerState, "remove_expired", ("if entry.txn_first_offset is None and", "if"))


def _ids_expire_soon(patch: Patch) -> None:
    """In every run, and after a third of a second."""
    patch.edit(transaction_settings, "_expiry", ("if rng.randrange(4):", "if False:"), ("(1_000, 3_000)", "(300,)"))


@mutant(
    "busy-id-expires",
    "an id is forgotten while something is under way for it",
    expects=("65", "68", "crash", "66"),
    lens=_ids_expire_soon,
)
def busy_id_expires(patch: Patch) -> None:
    """TX-63: what is committed behind the tombstone is of an id that nobody knows."""
    patch.edit(rules, "has_expired", ("entry.pending is None and", ""))


@mutant("open-id-expires", "an id is forgotten in the middle of its transaction", expects=("65", "68", "66"))
def open_id_expires(patch: Patch) -> None:
    """TX-63: nobody ends the transaction."""
    patch.edit(rules, "has_expired", ("entry.current.state in IDLE", "True"))


# --- transactions that hang


def _something_hangs(patch: Patch) -> None:
    """In every run, and not in a quarter of them."""
    patch.edit(workload, "_something_hangs", (".randrange(4) == 0", ".randrange(1) == 0"))


def _administrator_thinks(patch: Patch) -> None:
    """Something hangs in every run, and its end takes the administrator a while, and not in a third of the cases."""
    _something_hangs(patch)
    patch.edit(
        Administrator, "_look", ("rng.randrange(3) == 0", "rng.randrange(1) == 0"), ("(1_000, 30_000, 200_000)", "(200_000,)")
    )


@mutant(
    "told-and-not-ended",
    "an administrator is told that a transaction has ended which hangs on",
    expects=("66", "liveness"),
    lens=_something_hangs,
)
def told_and_not_ended(patch: Patch) -> None:
    """KIP-664: the last stable offset stands still, and nobody looks any more."""
    before = "iter(await ctx.markers.write_here(sound, ctx.settings.request_timeout_ms) if sound else ())"
    patch.edit(transactions, "write_markers", (before, "iter([ErrorCode.NONE] * len(sound))"), also=(hanging,))


@mutant(
    "ended-by-hand-in-any-epoch",
    "an abort of an administrator ends the transaction that its producer has begun meanwhile",
    expects=("66", "TransactionsSeen"),
    lens=_administrator_thinks,
)
def ended_by_hand_in_any_epoch(patch: Patch) -> None:
    """KIP-664, KIP-98: what was found to hang is over, and another transaction is open in its place."""
    patch.edit(ProducerState, "check_marker", ("self.check_epoch(header)", "pass"))


# --- requests that wait, and work in pieces


@mutant("held-not-released", "a request that waits for a step of its id waits on when that is done", expects=("68",))
def held_not_released(patch: Patch) -> None:
    """TX-30: the producer begins its next transaction when its patience is over, and not when it could."""
    patch.edit(TransactionShard, "_go_on", ("self._held.release(transactional_id)", "()"))


@mutant("held-and-lost", "a request that has waited long enough is never answered", expects=("68",))
def held_and_lost(patch: Patch) -> None:
    """TX-30: the leader of the partition waits for the answer, and with it the producer."""
    patch.edit(
        TransactionShard,
        "_fall_due",
        ("self._refuse(held.request_id, ErrorCode.CONCURRENT_TRANSACTIONS)", "held.request_id"),
    )


def _small_pieces(patch: Patch) -> None:
    """One id at a time, as with hundreds."""
    patch.set(walks, "AT_ONCE", 1)


@mutant("walk-stops", "work on many ids ends with its first piece", expects=("73", "66", "liveness"), lens=_small_pieces)
def walk_stops(patch: Patch) -> None:
    """TX-60, TX-62: what is decided is not carried out, and what takes too long is not aborted."""
    patch.edit(TransactionShard, "_take", ("bool(self._walks)", "False"))
