"""Every request of a transactional producer in every state, with every relation of its epoch to the coordinator's: the answers
as a table.

A row: what is asked, at which transaction.version; the states, by the letter that stands over the column.
`0` Empty, `O` Ongoing, `P` PrepareCommit, `p` PrepareAbort, `C` CompleteCommit, `c` CompleteAbort.
Source: TX-13 to TX-15, TX-30, TX-41 to TX-44; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftlite.coordinator.transactions import rules
from kraftlite.coordinator.transactions.rules import Answered, Decision, Entry, Next, Refused
from kraftlite.coordinator.transactions.states import LAST_EPOCH, PREDECESSORS, Transaction, TransactionState
from kraftlite.model.errors import ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition

S = TransactionState
STATES = {
    "0": S.EMPTY,
    "O": S.ONGOING,
    "P": S.PREPARE_COMMIT,
    "p": S.PREPARE_ABORT,
    "C": S.COMPLETE_COMMIT,
    "c": S.COMPLETE_ABORT,
}
ID, EPOCH = 4711, 7
TP = TopicPartition("orders", 3)
OTHER = TopicPartition("orders", 4)
NEXT_ID = 9000

WORDS = {
    "conc": ErrorCode.CONCURRENT_TRANSACTIONS,
    "fenced": ErrorCode.PRODUCER_FENCED,
    "state": ErrorCode.INVALID_TXN_STATE,
    "mapping": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "abortable": ErrorCode.TRANSACTION_ABORTABLE,
    "none": ErrorCode.NONE,
}

END = """
request   version  epoch   0        O         P       p       C       c
commit    1        same    state    prepare   conc    state   ok      state
commit    1        -1      fenced   fenced    fenced  fenced  fenced  fenced
commit    1        +1      fenced   fenced    fenced  fenced  fenced  fenced
commit    1        other   mapping  mapping   mapping mapping mapping mapping
abort     1        same    state    prepare   state   conc    state   ok
abort     1        -1      fenced   fenced    fenced  fenced  fenced  fenced
abort     1        +1      fenced   fenced    fenced  fenced  fenced  fenced
commit    2        same    state    prepare+  fenced  fenced  state   state
commit    2        -1      fenced   fenced    conc    state   ok      state
commit    2        -2      fenced   fenced    fenced  fenced  fenced  fenced
commit    2        +1      fenced   fenced    fenced  fenced  fenced  fenced
commit    2        other   mapping  mapping   mapping mapping mapping mapping
abort     2        same    prepare+ prepare+  fenced  fenced  prepare+ prepare+
abort     2        -1      fenced   fenced    state   conc    state   ok
abort     2        -2      fenced   fenced    fenced  fenced  fenced  fenced
abort     2        +1      fenced   fenced    fenced  fenced  fenced  fenced
"""

INIT = """
request   version  epoch   0        O         P       p       C       c
init      -        none    next     fence     conc    conc    next    next
init      -        same    next     fence     conc    conc    next    next
init      -        -1      again    fence     conc    conc    again   again
init      -        -2      fenced   fence     conc    conc    fenced  fenced
init      -        +1      fenced   fence     conc    conc    fenced  fenced
init      -        other   fenced   fenced    fenced  fenced  fenced  fenced
"""

ADD = """
request   version  epoch   0        O         P       p       C       c
add-known 0        same    begin    ok        conc    conc    begin   begin
add-new   0        same    begin    more      conc    conc    begin   begin
add-known 2        -1      fenced   fenced    fenced  fenced  fenced  fenced
add-known 2        +1      fenced   fenced    fenced  fenced  fenced  fenced
add-known 2        other   mapping  mapping   mapping mapping mapping mapping
verify    -        same    abortable none     conc    conc    abortable abortable
verify-new -       same    abortable abortable conc   conc    abortable abortable
verify    -        -1      fenced   fenced    fenced  fenced  fenced  fenced
verify    -        other   mapping  mapping   mapping mapping mapping mapping
"""


def cases(table: str) -> list[tuple[str, int, str, str, str]]:
    head, *rows = table.strip().splitlines()
    letters = head.split()[3:]
    found = []
    for row in rows:
        request, version, epoch, *answers = row.split()
        found += [
            (request, int(version.replace("-", "0")), epoch, letter, it) for letter, it in zip(letters, answers, strict=True)
        ]
    return found


def entry_in(letter: str, *, last_epoch: int = EPOCH - 1) -> Entry:
    state = STATES[letter]
    busy = state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT)
    return Entry(
        current=Transaction(
            producer_id=ID,
            producer_epoch=EPOCH,
            last_epoch=last_epoch,
            timeout_ms=60_000,
            state=state,
            partitions=frozenset({TP}) if busy else frozenset(),
            start_ms=500 if busy else -1,
            updated_ms=600,
        )
    )


def asker(epoch: str) -> Producer:
    if epoch == "other":
        return Producer(ID + 1, EPOCH)
    return Producer(ID, EPOCH + (0 if epoch == "same" else int(epoch)))


def decide(request: str, version: int, epoch: str, entry: Entry) -> Decision | ErrorCode:
    match request:
        case "commit" | "abort":
            return rules.end(
                entry, asker(epoch), commit=request == "commit", version=version, now_ms=1_000, new_id=lambda: NEXT_ID
            )
        case "init":
            expected = None if epoch == "none" else asker(epoch)
            return rules.init(entry, expected, timeout_ms=30_000, now_ms=1_000, new_id=lambda: NEXT_ID)
        case "add-known" | "add-new":
            wanted = frozenset({TP if request == "add-known" else OTHER})
            return rules.add(entry, asker(epoch), wanted, version=version, now_ms=1_000)
        case _:
            return rules.verify(entry, asker(epoch), TP if request == "verify" else OTHER)


@pytest.mark.parametrize("case", cases(END) + cases(INIT) + cases(ADD), ids=lambda it: "-".join(map(str, it)))
def test_tx_41_every_request_in_every_state(case: tuple[str, int, str, str, str]) -> None:
    request, version, epoch, letter, answer = case
    entry = entry_in(letter)
    entry.current = replace(entry.current, version=version)
    before = replace(entry.current)
    found = decide(request, version, epoch, entry)
    assert entry.current == before, "a rule changes nothing"
    if answer in WORDS:
        assert found in (Refused(WORDS[answer]), WORDS[answer]), found
        return
    if answer == "ok":
        assert isinstance(found, Answered) and found.producer == Producer(ID, EPOCH)
        return
    assert isinstance(found, Next), found
    new = found.transaction
    assert new.state is S.PREPARE_ABORT or new.may_follow(before), f"{new.state.title} after {before.state.title}"
    match answer:
        case "prepare" | "prepare+":
            assert new.state is (S.PREPARE_COMMIT if request == "commit" else S.PREPARE_ABORT)
            assert new.producer_epoch == EPOCH + (answer == "prepare+") and new.partitions == before.partitions
            assert new.start_ms == (500 if letter == "O" else 1_000)
        case "next":
            assert (new.state, new.producer_epoch, new.partitions, new.timeout_ms) == (S.EMPTY, EPOCH + 1, frozenset(), 30_000)
            assert new.last_epoch == (-1 if epoch == "none" else EPOCH)
        case "again":
            assert (new.state, new.producer_epoch, new.last_epoch) == (S.EMPTY, EPOCH, EPOCH - 1)
        case "fence":
            assert (new.state, new.producer_epoch, new.partitions) == (S.PREPARE_EPOCH_FENCE, EPOCH + 1, before.partitions)
        case "begin":
            wanted = TP if request == "add-known" else OTHER
            assert (new.state, new.start_ms, new.partitions) == (S.ONGOING, 1_000, frozenset({wanted}))
        case "more":
            assert (new.state, new.start_ms, new.partitions) == (S.ONGOING, 500, frozenset({TP, OTHER}))
        case _:
            pytest.fail(f"no such answer: {answer}")


@pytest.mark.parametrize("letter", STATES)
@pytest.mark.parametrize("request_name", ["commit", "abort", "init", "add-known"])
@pytest.mark.parametrize("version", [0, 2])
def test_tx_06_nothing_is_begun_while_a_state_is_on_its_way(letter: str, request_name: str, version: int) -> None:
    entry = entry_in(letter)
    entry.pending = entry.current
    assert decide(request_name, version, "same", entry) == Refused(ErrorCode.CONCURRENT_TRANSACTIONS)


def test_tx_42_an_unknown_id_has_no_transaction() -> None:
    who = Producer(ID, EPOCH)
    unknown = Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    for version in (0, 2):
        assert rules.end(None, who, commit=True, version=version, now_ms=0, new_id=lambda: None) == unknown
    assert rules.add(None, who, frozenset({TP}), version=0, now_ms=0) == unknown
    assert rules.verify(None, who, TP) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_tx_11_a_new_id_begins_with_epoch_zero() -> None:
    entry = Entry(current=rules.new(ID, 60_000, 5))
    found = rules.init(entry, None, timeout_ms=60_000, now_ms=6, new_id=lambda: None)
    assert isinstance(found, Next)
    assert (found.transaction.producer_id, found.transaction.producer_epoch) == (ID, 0)


def test_tx_17_the_last_epoch_is_followed_by_another_id() -> None:
    """32767 is given to nobody."""
    entry = entry_in("c")
    entry.current = replace(entry.current, producer_epoch=LAST_EPOCH)
    found = rules.init(entry, None, timeout_ms=60_000, now_ms=6, new_id=lambda: NEXT_ID)
    assert isinstance(found, Next)
    new = found.transaction
    assert (new.producer_id, new.producer_epoch, new.previous_producer_id, new.last_epoch) == (NEXT_ID, 0, ID, -1)
    waiting = rules.init(entry, None, timeout_ms=60_000, now_ms=6, new_id=lambda: None)
    assert waiting == Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def aborted(entry: Entry, version: int) -> Transaction:
    """Complete, when the coordinator has aborted it."""
    aborting = rules.abort_fenced(rules.fence(entry), version=version, now_ms=5, new_id=lambda: NEXT_ID)
    assert aborting is not None
    return rules.complete(aborting, now_ms=6)


@pytest.mark.parametrize(
    ("version", "epoch", "told"),
    [
        (0, LAST_EPOCH, Refused(ErrorCode.PRODUCER_FENCED)),
        (1, LAST_EPOCH, Refused(ErrorCode.PRODUCER_FENCED)),
        (2, 4, Answered(Producer(ID, 5))),
        (2, LAST_EPOCH, Answered(Producer(NEXT_ID, 0))),
    ],
)
def test_tx_17_who_is_timed_out_in_the_last_epoch_is_not_given_the_one_of_the_fence(
    version: int, epoch: int, told: Decision
) -> None:
    """An abort that comes behind the coordinator's own is taken for a repeated one: it is given the epoch of the fence, and
    behind the last one what an end of its own gives there (TX-45)."""
    entry = entry_in("O")
    entry.current = replace(entry.current, producer_epoch=epoch)
    entry.current = aborted(entry, version)
    who = Producer(ID, epoch)
    assert rules.end(entry, who, commit=False, version=2, now_ms=7, new_id=lambda: None) == told
    commits = rules.end(entry, who, commit=True, version=2, now_ms=7, new_id=lambda: None)
    assert commits == (told if isinstance(told, Refused) else Refused(ErrorCode.INVALID_TXN_STATE))


def test_tx_17_a_fence_behind_the_last_epoch_waits_for_an_id() -> None:
    for version, waits in ((1, False), (2, True)):
        entry = entry_in("O")
        entry.current = replace(entry.current, producer_epoch=LAST_EPOCH)
        found = rules.abort_fenced(rules.fence(entry), version=version, now_ms=5, new_id=lambda: None)
        assert (found is None) == waits


@pytest.mark.parametrize(
    ("version", "epoch", "goes_on"),
    [(0, 4, False), (1, 4, False), (2, 4, True), (2, LAST_EPOCH - 1, True), (0, LAST_EPOCH, False), (2, LAST_EPOCH, True)],
)
def test_tx_15_who_was_aborted_by_the_coordinator_goes_on_in_the_epoch_of_the_fence(
    version: int, epoch: int, goes_on: bool
) -> None:
    """By version 2 an abort is an end, whoever began it. Another instance that has come takes that away. 32767 is nobody's."""
    entry = entry_in("O")
    entry.current = replace(entry.current, producer_epoch=epoch)
    entry.current = aborted(entry, version)

    def init(expected: Producer | None) -> Decision:
        return rules.init(entry, expected, timeout_ms=60_000, now_ms=7, new_id=lambda: NEXT_ID)

    found = init(Producer(ID, epoch))
    if not goes_on:
        assert found == Refused(ErrorCode.PRODUCER_FENCED)
        return
    assert isinstance(found, Next)
    new = found.transaction
    assert (new.state, new.producer_id, new.producer_epoch) == (
        S.EMPTY,
        *((ID, epoch + 1) if epoch < LAST_EPOCH else (NEXT_ID, 0)),
    )
    assert init(Producer(ID, epoch - 1)) == Refused(ErrorCode.PRODUCER_FENCED)
    other = init(None)
    assert isinstance(other, Next)
    entry.current = other.transaction
    assert init(Producer(ID, epoch)) == Refused(ErrorCode.PRODUCER_FENCED)


@pytest.mark.parametrize("commit", [True, False])
def test_tx_40_the_version_of_the_end_is_that_of_the_markers(commit: bool) -> None:
    """A transaction that was begun by the rules of 2 keeps its epoch when it is ended by older ones. A marker of 2 in that epoch
    is refused by every partition, so that the outcome would never be carried out."""
    entry = entry_in("O")
    entry.current = replace(entry.current, version=2)
    for version in (0, 1):
        found = rules.end(entry, Producer(ID, EPOCH), commit=commit, version=version, now_ms=6, new_id=lambda: None)
        assert isinstance(found, Next)
        assert (found.transaction.producer_epoch, found.transaction.version) == (EPOCH, version)


@pytest.mark.parametrize("commit", [True, False])
def test_tx_45_an_end_in_the_last_epoch_goes_on_with_another_id_and_may_be_asked_again(commit: bool) -> None:
    entry = entry_in("O")
    entry.current = replace(entry.current, producer_epoch=LAST_EPOCH)
    who = Producer(ID, LAST_EPOCH)
    found = rules.end(entry, who, commit=commit, version=2, now_ms=6, new_id=lambda: NEXT_ID)
    assert isinstance(found, Next)
    assert (found.transaction.producer_epoch, found.transaction.next_producer_id) == (32_767, NEXT_ID)
    entry.current = rules.complete(found.transaction, now_ms=7)
    assert (entry.current.producer_id, entry.current.producer_epoch, entry.current.previous_producer_id) == (NEXT_ID, 0, ID)
    again = rules.end(entry, who, commit=commit, version=2, now_ms=8, new_id=lambda: None)
    assert again == Answered(Producer(NEXT_ID, 0))
    other = rules.end(entry, who, commit=not commit, version=2, now_ms=8, new_id=lambda: None)
    assert other == Refused(ErrorCode.INVALID_TXN_STATE)


def test_tx_19_a_fence_that_could_not_be_written_is_not_bumped_again() -> None:
    entry = entry_in("O")
    first = rules.fence(entry)
    entry.current, entry.fence_failed = replace(entry.current, producer_epoch=first.producer_epoch), True
    assert rules.fence(entry).producer_epoch == first.producer_epoch == EPOCH + 1


def test_tx_62_a_transaction_that_is_open_too_long_has_timed_out() -> None:
    entry = entry_in("O")
    assert not rules.has_timed_out(entry, 60_500) and rules.has_timed_out(entry, 60_501)
    entry.pending = entry.current
    assert not rules.has_timed_out(entry, 60_501)
    two_phase = Entry(current=replace(entry.current, timeout_ms=2**31 - 1))
    assert not rules.has_timed_out(two_phase, 2**40)
    assert not any(rules.has_timed_out(entry_in(it), 2**40) for it in STATES if it != "O")


def test_tx_05_every_state_that_is_written_has_predecessors() -> None:
    assert set(PREDECESSORS) == set(S)
    assert S.PREPARE_COMMIT not in PREDECESSORS[S.PREPARE_ABORT] and S.PREPARE_ABORT not in PREDECESSORS[S.PREPARE_COMMIT]
