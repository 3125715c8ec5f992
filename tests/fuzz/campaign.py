"""A hunt: cases until the time is over; what fails is made small and written down as a file of the corpus."""

from __future__ import annotations

import random
import re
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tests.fuzz import readers
from tests.fuzz.cases import Case, Step, write
from tests.fuzz.kafka import Drawer, Offered
from tests.fuzz.nodes import NodesDrawer
from tests.fuzz.run import LOOP_LIMIT_S, Failure, Session
from tests.fuzz.strangers import StrangersDrawer
from tests.fuzz.targets import opened

CASES_PER_NODE: Final = 2000
"""Then it is started again: what it has on disk must be what it served."""
TRIES: Final = 80
TRY_S: Final = 45.0
"""Of replays, to make one failure small: whichever is over first."""
Say = Callable[[str], None]


@dataclass(slots=True)
class Hunt:
    """One door, one seed. `run` returns the failures by kind; the first case of each kind is made small and written to `out`."""

    door: str
    seed: int
    kind: str
    out: Path | None = None
    say: Say = lambda text: None
    loop_limit_s: float | None = LOOP_LIMIT_S
    readers: bool = True
    """Real consumers read at the end."""
    found: Counter[str] = field(default_factory=Counter)
    cases: int = 0
    steps: int = 0
    slowest: tuple[float, str] = (0.0, "")
    tolerated: Counter[str] = field(default_factory=Counter)

    def run(self, *, seconds: float | None = None, cases: int | None = None) -> Counter[str]:
        """Until the time is over, which begins when the first node serves, or so many cases were run."""
        rng = random.Random(f"{self.seed}/{self.door}")
        end: float | None = None

        def over() -> bool:
            return (end is not None and time.monotonic() > end) or (cases is not None and self.cases >= cases)

        while not over():
            with opened(self.kind) as target:
                if end is None and seconds is not None:
                    end = time.monotonic() + seconds
                session = Session(target, loop_limit_s=self.loop_limit_s, door=self.door)
                self._on_one_node(session, self._drawer(rng, session), over)
        return self.found

    def _drawer(self, rng: random.Random, session: Session) -> Callable[[], Iterator[Step]]:
        if self.door in ("kafka", "controller"):
            return Drawer(rng, Offered(session.offered()), session.known).case
        if self.door in ("sasl", "tls"):
            return getattr(StrangersDrawer(rng, session.known), self.door)
        nodes = NodesDrawer(rng, session.known, session.target.cluster_id)
        return nodes.grpc if self.door == "grpc" else nodes.metrics

    def _on_one_node(self, session: Session, draw: Callable[[], Iterator[Step]], over: Callable[[], bool]) -> None:
        failure: Failure | None = None
        history: list[Step] = []
        for _ in range(CASES_PER_NODE):
            if over():
                break
            sent: list[Step] = []
            failure = session.run(draw(), sent)
            self.cases += 1
            if failure is not None:
                history = sent
                break
        if failure is None:
            failure = self._at_the_end(session)
        self.steps += session.steps_sent
        self.slowest = max(self.slowest, session.slowest)
        self.tolerated.update(session.tolerated)
        if failure is not None:
            self._failed(failure, Case(self.door, tuple(history), story=failure.detail))

    def _at_the_end(self, session: Session) -> Failure | None:
        if self.readers and (wrong := readers.stuck(session.target.kafka)) is not None:
            return Failure("a real consumer stands still", wrong)
        return session.close()

    def _failed(self, failure: Failure, case: Case) -> None:
        self.found[failure.kind] += 1
        if self.found[failure.kind] > 1:
            return
        self.say(f"{self.door}: {failure.kind}\n    {failure.detail[:1500]}")
        if self.out is None or not case.steps:
            return
        kind = "embedded" if self.door == "kafka" else self.kind  # it is quicker, and the code is the same
        small, again = Minimiser(kind, failure.kind, self.loop_limit_s, self.door).minimise(case)
        name = f"{self.door}-{_slug(failure.kind)}"
        if not again:
            self.say("    it did not fail again by itself: what came before it has a part in it")
        write(replace(small, name=name, story=f"{failure.kind}\n{failure.detail[:600]}"), self.out / f"{name}.toml")
        size = sum(len(it.data) for it in small.steps)
        self.say(f"    {len(small.steps)} steps of {len(case.steps)}, {size} bytes: {self.out / name}.toml")


class Minimiser:
    """Leaves out steps, then bytes, as long as the failure stays of the same kind. A node that is unharmed is used again."""

    def __init__(self, target_kind: str, kind: str, loop_limit_s: float | None, door: str) -> None:
        self._door = door
        self._target_kind = target_kind
        self._kind = kind
        self._limit = loop_limit_s
        self._tries = 0
        self._end = time.monotonic() + TRY_S
        self._stack = ExitStack()
        self._session: Session | None = None

    def minimise(self, case: Case) -> tuple[Case, bool]:
        """The smallest case found, and whether it fails by itself at all."""
        with self._stack:
            if not self._fails(case):
                return case, False
            case = self._fewer_steps(case)
            for number in range(len(case.steps)):
                case = self._fewer_bytes(case, number)
            return case, True

    def _fails(self, case: Case) -> bool:
        self._tries += 1
        if self._session is None:
            target = self._stack.enter_context(opened(self._target_kind))
            self._session = Session(target, loop_limit_s=self._limit, door=self._door)
        failure = self._session.replay(case)
        if failure is None:
            return False
        self._session = None
        self._stack.close()
        return failure.kind == self._kind

    def _goes_on(self) -> bool:
        return self._tries < TRIES and time.monotonic() < self._end

    def _fewer_steps(self, case: Case) -> Case:
        for number in reversed(range(len(case.steps))):
            steps = case.steps[:number] + case.steps[number + 1 :]
            if steps and self._goes_on() and self._fails(replace(case, steps=steps)):
                case = replace(case, steps=steps)
        return case

    def _fewer_bytes(self, case: Case, number: int) -> Case:
        """Only of a step that is one frame: its size is corrected."""
        step = case.steps[number]
        if step.to or not _one_frame(step.data):
            return case
        size = len(step.data) // 2
        while size > 0 and self._goes_on():
            at = len(step.data) - size
            while at > 12 and self._goes_on():
                shorter = _framed(step.data[4:at] + step.data[at + size :])
                steps = (*case.steps[:number], replace(step, data=shorter, cuts=()), *case.steps[number + 1 :])
                if self._fails(replace(case, steps=steps)):
                    case, step = replace(case, steps=steps), steps[number]
                at -= size
            size //= 2
        return case


def _one_frame(data: bytes) -> bool:
    return len(data) >= 4 and b"<<" not in data and struct.unpack_from(">i", data)[0] == len(data) - 4


def _framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def _slug(kind: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-")[:70]
