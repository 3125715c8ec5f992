"""Sends cases to a target and looks, after each step, at what must be true whatever was sent."""

from __future__ import annotations

import contextlib
import re
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

from kraftlite.protocol.errors import ProtocolViolation
from tests.clients.raw import Connection
from tests.fuzz.cases import Case, Step, filled, template
from tests.fuzz.client import PATIENCE_S, Canary, Conn, Gone, Silent
from tests.fuzz.elsewhere import elsewhere
from tests.fuzz.targets import Target
from tests.fuzz.values import Known
from tests.harness.wire_fakes import decode_response

LOOP_LIMIT_S: Final = 0.15
"""Of processor time that the loop may use for one step before it answers the good client: the promise is 100 ms; the rest is for
the good client's own request and for a processor that is slower than the one the promise is measured on."""
RSS_LIMIT_BYTES: Final = 600 << 20
"""Over what it was at the beginning."""
SETTLE_S: Final = 0.02
TOLERATED: Final = ("wire.request_failed", "raft.peer_refused")
"""Events in one line: a request was given up, its connection closed, because the node did not know how to go on with it; a peer
was refused, and somebody has to look at it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """`kind` is short and the same for the same cause; `detail` is all that was seen."""

    kind: str
    detail: str


@dataclass(slots=True)
class Session:
    """One target, the good client beside it, and what has been learnt from its answers."""

    target: Target
    known: Known = field(default_factory=Known)
    loop_limit_s: float | None = LOOP_LIMIT_S
    door: str = "kafka"
    """Or "controller": Kafka's protocol at the controller's port, the second one that speaks gRPC; "sasl" and "tls": a listener
    that asks who one is."""
    rss_limit: int = 0
    canary: Canary = field(init=False)
    steps_sent: int = 0
    slowest: tuple[float, str] = (0.0, "")
    tolerated: Counter[str] = field(default_factory=Counter)
    _conns: dict[int, Conn] = field(default_factory=dict)
    _said: dict[int, list[Step]] = field(default_factory=dict)
    """What was sent on each of them so far."""

    def __post_init__(self) -> None:
        self.canary = Canary(self.target.kafka)
        self.canary.prepare()
        self.canary.sing()
        self._learn_topics()
        self.target.errors()
        self.rss_limit = self.target.rss_bytes() + RSS_LIMIT_BYTES

    def _learn_topics(self) -> None:
        flags = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}
        body = {"topics": None, "allow_auto_topic_creation": False, **flags}
        self.known.learn(self.canary.call(3, 12, body))

    @property
    def address(self) -> tuple[str, int]:
        """Where the steps of cases go that name nothing else."""
        if self.door in self.target.doors:
            return self.target.doors[self.door]
        return self.target.grpc[1] if self.door == "controller" else self.target.kafka

    def offered(self) -> dict[int, tuple[int, int]]:
        if self.door == "controller":
            connection = Connection(f"{self.address[0]}:{self.address[1]}")
            try:
                return connection.offered()
            finally:
                connection.close()
        answer = self.canary.call(18, 3, {"client_software_name": "fuzz", "client_software_version": "1"})
        return {int(it.api_key): (int(it.min_version), int(it.max_version)) for it in answer.api_keys}

    def places(self) -> dict[str, bytes]:
        """What stands for the placeholders of a case here."""
        ids = {name: topic_id.bytes for name, topic_id in self.known.topic_ids.items()}
        return {**ids, "cluster-id": self.target.cluster_id.encode()}

    # --- a case

    def run(self, steps: Iterable[Step], sent: list[Step] | None = None) -> Failure | None:
        """None: everything holds. `sent` gets the steps as they can be replayed."""
        try:
            for step in steps:
                if sent is not None:
                    sent.append(replace(step, data=template(step.data, self.places())))
                if (failure := self._one(step)) is not None:
                    return failure
            return self._afterwards()
        finally:
            for conn in self._conns.values():
                conn.close()
            self._conns.clear()
            self._said.clear()

    def replay(self, case: Case) -> Failure | None:
        self.canary.prepare()
        self._learn_topics()
        return self.run(case.steps)

    def _one(self, step: Step) -> Failure | None:
        self.steps_sent += 1
        before = self.target.loop_cpu_s()
        data = filled(step.data, self.places())
        answers: list[bytes] = []
        said = list(self._said.get(step.conn, ()))
        refused = self._send(step, data) if not step.to else elsewhere(self.target, step.to, data)
        try:
            self.canary.ping()
        except (Gone, Silent, OSError) as error:
            return self._dead(f"{type(error).__name__}: {error}", step)
        used = self.target.loop_cpu_s() - before
        if self.loop_limit_s is not None and used > self.loop_limit_s:
            used = min(used, self._once_more(step, data, said))
        if used > self.slowest[0]:
            self.slowest = (used, step.note)
        if not refused and not step.to:
            failure = self._collect(step, answers)
            if failure is not None:
                return failure
        for answer in answers:
            self._learn(data, answer)
        if (ended := self.target.ended()) is not None:
            return Failure(f"the node ended: {_short(ended)}", f"{ended}\nafter {step.note}")
        if self.loop_limit_s is not None and used > self.loop_limit_s:
            return Failure(f"the loop was held by {_name(step.note)}", f"{used * 1000:.0f} ms of one step: {step.note}")
        return None

    def _once_more(self, step: Step, data: bytes, said: list[Step]) -> float:
        """What the same step costs on a connection of its own: what was first seen may be the end of the step before it. Another
        door takes its time to answer, and the good client asks all the while: what counts is what it has to wait for.
        `said`: what came before it on its connection, without which a door that asks who one is does not listen to it."""
        before = self.target.loop_cpu_s()
        try:
            if step.to:
                return self._worst_beside(lambda: elsewhere(self.target, step.to, data))
            conn = Conn(self.address)
            for earlier in said if self.door in self.target.doors else ():
                conn.send(filled(earlier.data, self.places()), earlier.cuts)
                with contextlib.suppress(Silent):
                    conn.frame(SETTLE_S)
                self.canary.ping()
            before = self.target.loop_cpu_s()
            conn.send(data, step.cuts)
            self.canary.ping()
            conn.close()
        except (Gone, Silent, OSError):
            return 0.0  # what has happened is seen where it is looked for
        return self.target.loop_cpu_s() - before

    def _worst_beside(self, harm: Callable[[], object]) -> float:
        """The processor time that the loop uses at most between two answers to the good client, until the harm is done."""
        worst, last = 0.0, self.target.loop_cpu_s()
        with ThreadPoolExecutor(1) as aside:
            doing = aside.submit(harm)
            ended = False
            while not ended:
                ended = doing.done()  # and one more answer behind its end
                self.canary.ping()
                now = self.target.loop_cpu_s()
                worst, last = max(worst, now - last), now
            doing.result()
        return worst

    def _send(self, step: Step, data: bytes) -> bool:
        """True: the connection was closed at it."""
        conn = self._conns.get(step.conn)
        try:
            if conn is None:
                conn = self._conns[step.conn] = Conn(self.address)
                self._said[step.conn] = []
            self._said[step.conn].append(step)
            conn.send(data, step.cuts)
        except (Gone, OSError):
            self._forget(step.conn)
            return True
        return False

    def _forget(self, number: int) -> None:
        conn = self._conns.pop(number, None)
        self._said.pop(number, None)
        if conn is not None:
            conn.close()

    def _collect(self, step: Step, answers: list[bytes]) -> Failure | None:
        conn = self._conns[step.conn]
        try:
            answers.extend(conn.frame(PATIENCE_S) for _ in range(step.answers))
            if not step.answers:
                answers.append(conn.frame(SETTLE_S))
        except Gone:
            self._forget(step.conn)
        except Silent:
            if step.answers:
                return Failure(f"no answer to {_name(step.note)}", f"neither answered nor closed: {step.note}")
            self._forget(step.conn)  # it may be waiting for the rest of a frame
        return None

    def _learn(self, request: bytes, answer: bytes) -> None:
        key, version = struct.unpack_from(">hh", request, 4) if len(request) >= 8 else (-1, -1)
        try:
            self.known.learn(decode_response(key, version, answer))
        except Exception:  # noqa: BLE001 - of a mutated request nobody knows which version its answer is in
            return

    def _dead(self, why: str, step: Step) -> Failure:
        deadline = time.monotonic() + 5
        while (ended := self.target.ended()) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if ended is not None:
            return Failure(f"the node ended: {_short(ended)}", f"{ended}\nafter {step.note}")
        return Failure(f"the good client got nothing after {_name(step.note)}", f"{why}; after {step.note}")

    def _afterwards(self) -> Failure | None:
        try:
            self.canary.sing()
            self.canary.prepare()
            wrong = self.canary.unsound()
        except (Gone, Silent, OSError) as error:
            return self._dead(f"{type(error).__name__}: {error}", Step(0, b"", note="the case"))
        except AssertionError as error:
            return Failure("the good client is harmed", str(error))
        except ProtocolViolation as error:
            return Failure("the good client cannot read", str(error))
        if wrong is not None:
            return Failure(f"unsound records: {_kind(wrong)}", wrong)
        errors = [it for it in self.target.errors() if not self._tolerated(it)]
        if errors:
            return Failure(f"an error in the log: {_short(errors[0])}", "\n".join(errors)[:4000])
        if self.target.rss_bytes() > self.rss_limit:
            return Failure("memory", f"{self.target.rss_bytes() >> 20} MiB")
        return None

    def _tolerated(self, error: str) -> bool:
        """A request that failed inside of the node and cost nobody else anything: told, and counted."""
        if not any(it in error for it in TOLERATED):
            return False
        self.tolerated[_short(error)] += 1
        return True

    # --- the end

    def close(self) -> Failure | None:
        """The node is started again and everything is still there."""
        try:
            self.canary.verify()
            self.canary.close()
            self.target.restart()
            deadline = time.monotonic() + PATIENCE_S
            while True:
                try:
                    self.canary.verify()
                    return None
                except (Gone, Silent, OSError):
                    assert time.monotonic() < deadline, "the good client cannot read after the restart"
                    time.sleep(0.1)
                except AssertionError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)
        except AssertionError as error:
            return Failure("after a restart", str(error))
        finally:
            self.canary.close()


def _short(text: str) -> str:
    return re.sub(r"\d+", "N", text.splitlines()[0])[:110]


def _kind(wrong: str) -> str:
    return _short(wrong.partition("offset ")[2] or wrong)


def _name(note: str) -> str:
    return note.partition(":")[0]
