"""Clients that log in, work until their session ends and beyond it, and log in again (theme `security`).

They come with passwords of PLAIN, with the SCRAM credential with which the cluster was formatted, and with delegation tokens that
they make, renew and end for each other, rightly and wrongly. All of them come through `services/logins`. Source: SE-10 to SE-16.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.principal import USER
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import TransportError
from kraftlite.sim.client import SimClient
from kraftlite.sim.history import History
from kraftlite.sim.services.logins import LOGIN, PASSWORDS, PLAIN, SCRAM_256, SCRAM_512, LoginAnswer, LoginAsk
from kraftlite.sim.workloads.security_settings import FIRST_PASSWORD, FIRST_USER

if TYPE_CHECKING:
    from kraftlite.sim.cluster import SimCluster

FIRST_NUMBER: Final = 250
CLIENTS: Final = 3
METADATA: Final = (3, 9)
HANDSHAKE: Final = (17, 1)
AUTHENTICATE: Final = (36, 2)
CREATE: Final = (38, 3)
RENEW: Final = (39, 2)
EXPIRE: Final = (40, 2)
DESCRIBE: Final = (41, 3)
FLEXIBLE: Final = frozenset({METADATA, AUTHENTICATE, CREATE, RENEW, EXPIRE, DESCRIBE})
WRONG: Final = "guess"
LONGEST_SESSION_MS: Final = 20_000
"""The longest session whose end a client waits for: where clocks jump, that of a token may be minutes away."""
MOST_TOKENS: Final = 8
"""The tokens that the clients of a run know at a time; older ones are forgotten."""


@dataclass(frozen=True, slots=True)
class Credential:
    """`user`: as a login names it, for a token its id."""

    mechanism: str
    user: str
    password: str
    token: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """A token that somebody has been given."""

    token_id: str
    hmac: bytes


def visit(
    cluster: SimCluster, history: History, _partitions: Sequence[TopicPartition]
) -> Iterator[tuple[SimClient, Coroutine[None, None, None]]]:
    tokens: list[Token] = []
    for index in range(CLIENTS):
        client = LoginClient(cluster, FIRST_NUMBER + index, f"login-{index}", history, tokens)
        yield client, client.run()


def frame(api: tuple[int, int], number: int, values: dict[str, Any]) -> bytes:
    """A request without its size."""
    from kraftlite.protocol.kio_codec import encode_request

    client_id = b"logins"
    head = struct.pack(">hhih", *api, number, len(client_id)) + client_id + (b"\x00" if api in FLEXIBLE else b"")
    return head + encode_request(*api, values)


def known_logins() -> tuple[Credential, ...]:
    return (
        *(Credential(PLAIN, user, password) for user, password in PASSWORDS.items()),
        Credential(SCRAM_256, FIRST_USER, FIRST_PASSWORD),
        Credential(SCRAM_512, FIRST_USER, FIRST_PASSWORD),
    )


class LoginClient(SimClient):
    """One connection after the other."""

    def __init__(self, cluster: SimCluster, number: int, name: str, history: History, tokens: list[Token]) -> None:
        super().__init__(cluster, number, name, history)
        self._tokens = tokens
        self._connection = 0
        self._sent = 0

    async def run(self) -> None:
        while not self.stopping:
            self._connection += 1
            broker = self.rng.choice([node.node_id for node in self.cluster.brokers])
            try:
                await self._connect(broker)
            except (TransportError, ApiError):
                await self.backoff()
            await self.pause(self.rng.randint(1, 400_000))

    async def _connect(self, broker: NodeId) -> None:
        rng = self.rng
        credential = self._credential()
        lasts_ms = await self._login(broker, credential)
        for _ in range(rng.choice((1, 3, 10))):
            if lasts_ms is None or self.stopping:
                return
            most_us = 1_000 * min(lasts_ms or 3_000, LONGEST_SESSION_MS)
            await self.pause(rng.randint(1, rng.choice((most_us // 8, most_us // 2, 3 * most_us // 2))))
            if rng.randrange(3):
                answer = await self._work(broker)
                if answer.closed:
                    return
            else:
                again = credential if rng.randrange(3) else self._credential()
                lasts_ms = await self._login(broker, again, behind=rng.choice((0, 1, 3)))

    def _credential(self) -> Credential:
        """A quarter of the passwords are wrong."""
        rng = self.rng
        if self._tokens and rng.randrange(3) == 0:
            token = rng.choice(self._tokens)
            password = base64.b64encode(token.hmac).decode()
            found = Credential(rng.choice((SCRAM_256, SCRAM_512)), token.token_id, password, True)
        else:
            found = rng.choice(known_logins())
        if rng.randrange(4):
            return found
        return Credential(found.mechanism, found.user, WRONG, found.token)

    # --- requests

    async def _send(self, broker: NodeId, *frames: bytes, knows: bool = True) -> LoginAnswer:
        ask = LoginAsk(client=self.name, connection=self._connection, frames=frames, knows=knows)
        return await self.call(broker, LOGIN, ask, 10_000)

    def _frame(self, api: tuple[int, int], values: dict[str, Any]) -> bytes:
        self._sent += 1
        return frame(api, self._sent, values)

    async def _login(self, broker: NodeId, credential: Credential, behind: int = 0) -> int | None:
        """The milliseconds that the session lasts, 0: for ever; None: this was refused. Its first message comes at once behind
        so many requests that are not answered yet."""
        from kraftlite.client.security import Plain, Scram
        from kraftlite.protocol.kio_codec import decode_response
        from kraftlite.protocol.primitives import milliseconds

        work = [self._frame(*self._request()) for _ in range(behind)]
        if credential.mechanism == PLAIN:
            exchange: Any = Plain(credential.user, credential.password)
        else:
            nonce = f"{self.name}-{self._connection}-{self._sent}"
            exchange = Scram(credential.mechanism, credential.user, credential.password, nonce=nonce, token=credential.token)
        frames = [*work, self._frame(HANDSHAKE, {"mechanism": credential.mechanism})]
        challenge: bytes | None = None
        lasts_ms = 0
        while True:
            message = exchange.answer(challenge)
            if message is None:
                return lasts_ms
            frames.append(self._frame(AUTHENTICATE, {"auth_bytes": message}))
            answer = await self._send(broker, *frames, knows=credential.password != WRONG)
            if answer.closed or len(answer.answers) < len(frames):
                return None
            frames = []
            told = decode_response(*AUTHENTICATE, memoryview(answer.answers[-1]))
            if told.error_code != ErrorCode.NONE:
                return None  # it is too soon after the last one
            challenge, lasts_ms = bytes(told.auth_bytes), milliseconds(told.session_lifetime)

    async def _work(self, broker: NodeId) -> LoginAnswer:
        asked = [self._request() for _ in range(self.rng.choice((1, 1, 3)))]
        answer = await self._send(broker, *(self._frame(*it) for it in asked))
        for (api, _values), told in zip(asked, answer.answers, strict=False):
            if api == CREATE:
                self._keep(told)
        return answer

    def _request(self) -> tuple[tuple[int, int], dict[str, Any]]:
        rng, what = self.rng, self.rng.randrange(8)
        if what < 4 or (what < 6 and not self._tokens):
            topics: dict[str, Any] = {"topics": [], "allow_auto_topic_creation": False}
            return METADATA, {
                **topics,
                "include_cluster_authorized_operations": False,
                "include_topic_authorized_operations": False,
            }
        if what >= 6:
            renewers = [{"principal_type": USER, "principal_name": rng.choice((*PASSWORDS, FIRST_USER))}]
            owner = {"owner_principal_type": None, "owner_principal_name": None}
            return CREATE, {**owner, "renewers": renewers[: rng.randrange(2)], "max_lifetime": rng.choice((-1, 3_000, 90_000))}
        token = rng.choice(self._tokens)
        if what == 4:
            return RENEW, {"hmac": token.hmac, "renew_period": rng.choice((-1, 1_000, 60_000))}
        return EXPIRE, {"hmac": token.hmac, "expiry_time_period": rng.choice((-1, 1_000, 4_000))}

    def _keep(self, answer: bytes) -> None:
        from kraftlite.protocol.kio_codec import decode_response

        told = decode_response(*CREATE, memoryview(answer))
        if told.token_id:
            self._tokens.append(Token(told.token_id, bytes(told.hmac)))
            del self._tokens[:-MOST_TOKENS]
