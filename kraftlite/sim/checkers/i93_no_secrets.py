"""Invariant 93: what keeps a password safe is in the metadata log, and nowhere where people read (CM-51)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Any, ClassVar, Final

from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import ALTER_USER_SCRAM_CREDENTIALS
from kraftlite.model.messages.security import AlterUserScramCredentialsRequest
from kraftlite.model.method import AnyMethod
from kraftlite.runtime.trace import TraceEvent
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.history_checker import HistoryChecker
from kraftlite.simhost.host import SimHost

_DIGESTS: Final[dict[int, Callable[..., Any]]] = {1: hashlib.sha256, 2: hashlib.sha512}
"""By the numbers of the mechanisms (KIP-554)."""


class NoSecrets(HistoryChecker):
    """The keys of each SCRAM credential that somebody asks for are in no event of any node, and in no description that a client
    was given: neither as text of bytes nor in hexadecimal digits nor in base64.

    Salts and salted passwords of these runs are too short to be told from chance. The keys that are made of them are not.
    """

    numbers: ClassVar[tuple[int, ...]] = (93,)
    only_methods: ClassVar[tuple[AnyMethod, ...] | None] = (ALTER_USER_SCRAM_CREDENTIALS,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.secrets: dict[bytes, str] = {}
        """The user to whose credential each key belongs."""
        self._pattern: re.Pattern[str] | None = None

    def on_call(self, source: NodeId, target: NodeId, method: AnyMethod, request: object) -> None:
        if not isinstance(request, AlterUserScramCredentialsRequest):
            return
        for it in request.upsertions:
            digest = _DIGESTS.get(it.mechanism)
            if digest is None:
                continue
            client_key = hmac.new(it.salted_password, b"Client Key", digest).digest()
            server_key = hmac.new(it.salted_password, b"Server Key", digest).digest()
            for secret in (client_key, digest(client_key).digest(), server_key):
                self.secrets[secret] = it.name
        self._pattern = None

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if self.secrets:
            self._look(" ".join(map(str, event.facts().values())), f"node {node.node_id} traces {event.event}")

    def at_end(self) -> None:
        if self.secrets:
            for it in self.history.descriptions:
                self._look(str(it.found), f"node {it.broker} describes {it.kind}")

    def _look(self, text: str, where: str) -> None:
        if self._pattern is None:
            self._pattern = re.compile("|".join(re.escape(form) for secret in self.secrets for form in _forms(secret)))
        found = self._pattern.search(text)
        if found is not None:
            whose = next(user for secret, user in self.secrets.items() if found.group() in _forms(secret))
            self.fail(f"{where} with a key of user {whose!r}'s credential")


def _forms(secret: bytes) -> tuple[str, ...]:
    """The ways in which bytes come into a text, also into one that is quoted within another. Without quotes and padding."""
    plain = repr(secret)[2:-1]
    return plain, repr(plain)[1:-1], secret.hex(), base64.b64encode(secret).decode().rstrip("=")
