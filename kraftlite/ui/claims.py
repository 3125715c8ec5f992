"""Claims of nodes about one thing, and the verdict that all of them together amount to. Pure.

A claim is one node's word about who leads: the quorum, or a partition. A verdict is drawn from all claims about one thing, and
merges nothing: the claims stay beside it. Only fresh claims count, those of nodes that answer now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kraftlite.ui.losses import Losses
from kraftlite.ui.words import ALIVE, Key, NodeWords

AGREE, SPREADING, SPLIT, SAME_EPOCH = "agree", "spreading", "split", "same_epoch"
LAST_WORD, NOBODY, UNHEARD = "silent", "nobody", "unknown"
DISAGREE: Final = "disagree"
"""A `spreading` that has lasted too long to be one."""
SPREADING_MS: Final = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Node `by` says that `leader` (None: nobody) leads in `epoch`. `own`: it speaks of itself as the leader."""

    by: int
    leader: int | None
    epoch: int
    fresh: bool
    own: bool
    heard_ms: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "by": self.by,
            "leader": self.leader,
            "epoch": self.epoch,
            "fresh": self.fresh,
            "own": self.own,
            "heard_ms": self.heard_ms,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`kind`, and the leader and its epoch that it speaks of: of the highest epoch where there are two.

    agree: one leads, and all fresh claims say so. spreading: one leads, and others have not heard of it yet. disagree: for longer
    than news take. split: two lead, in different epochs. same_epoch: two lead in one epoch, which must never happen. silent: the
    last that was heard is that `leader` leads, and it does not answer. nobody: those who answer know of no leader. unknown: no
    node has ever been heard on this.
    """

    kind: str
    leader: int | None
    epoch: int | None
    leaders: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "leader": self.leader, "epoch": self.epoch, "leaders": list(self.leaders)}


def controller_claims(nodes: Iterable[NodeWords], now_ms: int) -> list[Claim]:
    """The word of each node on the active controller. An own claim is that of a node that leads the quorum by its own word."""
    found = []
    for node in nodes:
        status = node.status
        if status is None or node.heard_ms is None:
            continue
        own = status.active_controller or status.raft_state == "leader"
        found.append(
            Claim(
                by=node.id,
                leader=node.id if own else None if status.leader_id is None else int(status.leader_id),
                epoch=status.raft_epoch,
                fresh=node.life(now_ms) == ALIVE,
                own=own,
                heard_ms=node.heard_ms,
            )
        )
    return found


def partition_claims(nodes: Iterable[NodeWords], key: Key, now_ms: int) -> list[Claim]:
    """The word of each broker that has a replica of this partition on its leader."""
    found = []
    for node in nodes:
        said = node.replicas.get(key)
        if said is None or node.replicas_ms is None:
            continue
        leader = node.id if said.is_leader else None if said.leader_id is None else int(said.leader_id)
        if leader == node.id and not said.is_leader:
            leader = None  # the metadata names it, and it does not lead yet
        found.append(
            Claim(
                by=node.id,
                leader=leader,
                epoch=said.leader_epoch,
                fresh=node.life(now_ms) == ALIVE,
                own=said.is_leader,
                heard_ms=node.replicas_ms,
            )
        )
    return found


def verdict_of(claims: Sequence[Claim]) -> Verdict:
    """The verdict of all claims about one thing; the same for any order of them."""
    if not claims:
        return Verdict(kind=UNHEARD, leader=None, epoch=None)
    fresh = [claim for claim in claims if claim.fresh]
    owners = sorted((claim for claim in fresh if claim.own), key=lambda claim: (-claim.epoch, claim.by))
    if len(owners) > 1:
        first, second = owners[:2]
        kind = SAME_EPOCH if first.epoch == second.epoch else SPLIT
        return Verdict(kind=kind, leader=first.by, epoch=first.epoch, leaders=tuple(sorted(claim.by for claim in owners)))
    if owners:
        (owner,) = owners
        same = all((claim.leader, claim.epoch) == (owner.by, owner.epoch) for claim in fresh)
        return Verdict(kind=AGREE if same else SPREADING, leader=owner.by, epoch=owner.epoch, leaders=(owner.by,))
    return _without_owner(claims, fresh)


def _without_owner(claims: Sequence[Claim], fresh: Sequence[Claim]) -> Verdict:
    """Nobody who answers says that it leads. Whom the newest epoch names leads by its last word, unless it answers."""
    epoch = max(claim.epoch for claim in fresh or claims)
    named = {claim.leader for claim in fresh or claims if claim.epoch == epoch and claim.leader is not None}
    answering = {claim.by for claim in fresh}
    silent = sorted(leader for leader in named if leader not in answering)
    if silent:
        return Verdict(kind=LAST_WORD, leader=silent[0], epoch=epoch, leaders=tuple(silent))
    if not fresh:
        return Verdict(kind=LAST_WORD, leader=None, epoch=epoch)
    return Verdict(kind=NOBODY, leader=None, epoch=epoch)


@dataclass(frozen=True, slots=True)
class Since:
    """The time at which something became what it is. `exact` is False for what was so already when it was seen first: then it is
    so for at least this long."""

    ms: int
    exact: bool


class Memory:
    """Since when things are what they are, which verdicts have been `spreading` for too long, and what was lost."""

    def __init__(self) -> None:
        self._since: dict[object, tuple[str, Since]] = {}
        self.losses = Losses()

    def since(self, about: object, what: str, now_ms: int) -> Since:
        """`about` is `what` now; returns since when."""
        before = self._since.get(about)
        if before is not None and before[0] == what:
            return before[1]
        found = Since(now_ms, exact=before is not None)
        self._since[about] = what, found
        return found

    def settle(self, about: object, verdict: Verdict, now_ms: int) -> tuple[Verdict, Since]:
        """The verdict, and since when it is this kind, about this leader."""
        since = self.since(about, f"{verdict.kind} {verdict.leader}", now_ms)
        if verdict.kind == SPREADING and now_ms - since.ms > SPREADING_MS:
            verdict = Verdict(kind=DISAGREE, leader=verdict.leader, epoch=verdict.epoch, leaders=verdict.leaders)
        return verdict, since

    def forget(self, known: Iterable[object]) -> None:
        """Forget all but these: topics come and go."""
        self._since = {about: self._since[about] for about in known if about in self._since}
