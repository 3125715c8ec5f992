"""What many claims about one thing amount to: a table, and that neither their order nor an old claim changes the verdict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlite.ui.claims import Claim, Memory, Verdict, controller_claims, partition_claims, verdict_of
from tests.harness.ui import NOW, broker, controller, replica


def claim(by: int, leader: int | None, epoch: int = 1, *, fresh: bool = True) -> Claim:
    return Claim(by=by, leader=leader, epoch=epoch, fresh=fresh, own=leader == by, heard_ms=0)


CASES = {
    "nobody has been heard": ([], ("unknown", None, None)),
    "all say the same": ([claim(1, 1), claim(2, 1), claim(3, 1)], ("agree", 1, 1)),
    "one has not heard of the new epoch": ([claim(1, None, 1), claim(2, 2, 2), claim(3, 2, 2)], ("spreading", 2, 2)),
    "two lead in two epochs": ([claim(1, 1, 1), claim(2, 2, 2), claim(3, 2, 2)], ("split", 2, 2)),
    "two lead in one epoch": ([claim(1, 1, 2), claim(2, 2, 2)], ("same_epoch", 1, 2)),
    "the leader does not answer": ([claim(1, 1, fresh=False), claim(2, 1), claim(3, 1)], ("silent", 1, 1)),
    "an election runs": ([claim(1, 1, fresh=False), claim(2, None, 2), claim(3, 1, 1)], ("nobody", None, 2)),
    "an old leader does not answer, and a new one leads": (
        [claim(1, 1, fresh=False), claim(2, 2, 2), claim(3, 2, 2)],
        ("agree", 2, 2),
    ),
    "nobody answers": ([claim(1, 1, fresh=False), claim(2, 1, fresh=False)], ("silent", 1, 1)),
    "who is named answers, and does not lead": ([claim(1, None), claim(2, 1)], ("nobody", None, 1)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_verdict(case: str) -> None:
    claims, wanted = CASES[case]
    found = verdict_of(claims)
    assert (found.kind, found.leader, found.epoch) == wanted


claims_of_nodes = st.lists(
    st.builds(claim, st.integers(1, 5), st.none() | st.integers(1, 5), st.integers(0, 3), fresh=st.booleans()),
    max_size=5,
    unique_by=lambda it: it.by,
)


@given(claims_of_nodes, st.randoms())
def test_the_order_of_claims_does_not_matter(claims: list[Claim], random: object) -> None:
    shuffled = list(claims)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert verdict_of(shuffled) == verdict_of(claims)


@given(claims_of_nodes)
def test_a_leader_that_is_shown_as_leading_says_so_itself_and_answers(claims: list[Claim]) -> None:
    found = verdict_of(claims)
    leading = {it.by for it in claims if it.fresh and it.own}
    if found.kind in ("agree", "spreading", "split", "same_epoch"):
        assert found.leader in leading and set(found.leaders) == leading
    else:
        assert not leading


def test_what_nodes_say_of_the_controller() -> None:
    nodes = [controller(1, active=True), controller(2, age_ms=30_000), controller(3, age_ms=None)]
    found = controller_claims(nodes, NOW)
    assert [(it.by, it.leader, it.own, it.fresh) for it in found] == [(1, 1, True, True), (2, 1, False, False)]


def test_a_leader_of_the_metadata_that_does_not_lead_yet_is_no_leader() -> None:
    nodes = [broker(4, replica(leads=False, leader=4, epoch=1)), broker(5, replica(leader=4, epoch=1))]
    found = partition_claims(nodes, ("orders", 0), NOW)
    assert [(it.by, it.leader, it.own) for it in found] == [(4, None, False), (5, 4, False)]
    assert verdict_of(found).kind == "nobody"


def test_news_that_do_not_spread_become_a_disagreement() -> None:
    memory = Memory()
    spreading = Verdict(kind="spreading", leader=2, epoch=2)
    assert memory.settle("it", spreading, 1_000)[0].kind == "spreading"
    found, since = memory.settle("it", spreading, 4_001)
    assert (found.kind, since.ms, since.exact) == ("disagree", 1_000, False)
    assert memory.settle("it", Verdict(kind="agree", leader=2, epoch=2), 5_000)[1].exact, "the change itself was seen"
    memory.forget([])
    assert not memory.settle("it", spreading, 6_000)[1].exact
