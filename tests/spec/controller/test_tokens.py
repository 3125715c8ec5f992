"""Delegation tokens, as the controller decides. SE-16."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kraftlite.controller.config import ControllerConfig
from kraftlite.controller.results import ControllerResult
from kraftlite.controller.state import ControllerState
from kraftlite.controller.token_control import MAX_SWEPT
from kraftlite.metadata.records import DelegationTokenRecord, FeatureLevelRecord
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from kraftlite.model.tuning import TokenTimes
from kraftlite.security.tokens import token_hmac
from tests.harness.wire_fakes import ListTracer

NOW_MS = 1_700_000_000_000
TIMES = TokenTimes(max_lifetime_ms=10_000, expiry_ms=1_000)
ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"


class Tokens:
    """A controller's state, to which each decision is replayed."""

    def __init__(self, secret: str | None = "hunter2", level: int = 30) -> None:
        config = ControllerConfig(node_id=NodeId(1), cluster_id="c", token_secret=secret, token_times=TIMES)
        self.state = ControllerState(config, random.Random(3), ListTracer())
        self.offset = 0
        self._replay(ControllerResult(records=[FeatureLevelRecord(name="metadata.version", level=level)], response=None))
        assert secret is None or secret not in repr(config)

    @property
    def tokens(self) -> dict[str, DelegationTokenRecord]:
        return {key: self.state.tokens.tokens[key] for key in self.state.tokens.tokens}

    def _replay(self, result: ControllerResult[Any]) -> Any:
        for record in result.records:
            self.state.replay(record, self.offset)
            self.offset += 1
        return result.response

    def create(self, at: int = NOW_MS, *, owner: str = ALICE, most: int = -1) -> CreateDelegationTokenResponse:
        request = CreateDelegationTokenRequest(owner=owner, requester=ALICE, renewers=(BOB,), max_lifetime_ms=most, timeout_ms=1)
        found = self._replay(self.state.tokens.create(request, at))
        assert isinstance(found, CreateDelegationTokenResponse)
        return found

    def renew(self, code: bytes, at: int, *, by: str = ALICE, period: int = -1) -> int:
        request = RenewDelegationTokenRequest(requester=by, hmac=code, period_ms=period, timeout_ms=1)
        return int(self._replay(self.state.tokens.renew(request, at)).expiry_ms)

    def expire(self, code: bytes, at: int, *, by: str = ALICE, period: int = -1) -> int:
        request = ExpireDelegationTokenRequest(requester=by, hmac=code, period_ms=period, timeout_ms=1)
        return int(self._replay(self.state.tokens.expire(request, at)).expiry_ms)

    def sweep(self, at: int) -> bool:
        return bool(self._replay(self.state.tokens.sweep(at)))


def refused(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value.code


def test_a_token_is_issued_and_its_code_is_in_no_record() -> None:
    found = Tokens()
    token = found.create(owner=CAROL)
    assert (token.issued_ms, token.expiry_ms, token.max_ms) == (NOW_MS, NOW_MS + 1_000, NOW_MS + 10_000)
    assert token.hmac == token_hmac("hunter2", token.token_id) and len(token.hmac) == 64
    record = found.tokens[token.token_id]
    assert (record.owner, record.requester, record.renewers) == (CAROL, ALICE, (BOB,))
    assert token.hmac not in [getattr(record, name) for name in record.__slots__] and str(token.hmac) not in repr(token)
    short = found.create(most=500)
    assert (short.expiry_ms, short.max_ms) == (NOW_MS + 500, NOW_MS + 500)
    assert found.create(most=99_999).max_ms == NOW_MS + 10_000


def test_it_is_renewed_until_its_longest_life_is_over() -> None:
    found = Tokens()
    code = found.create().hmac
    assert found.renew(code, NOW_MS + 900) == NOW_MS + 1_900
    assert found.renew(code, NOW_MS + 1_000, by=BOB, period=500) == NOW_MS + 1_500
    assert found.renew(code, NOW_MS + 1_500, period=99_999) == NOW_MS + 2_500
    for at in range(NOW_MS + 2_500, NOW_MS + 9_500, 1_000):
        last = found.renew(code, at)
    assert last == NOW_MS + 9_500 and found.renew(code, NOW_MS + 9_400) == NOW_MS + 10_000


def test_it_is_ended_at_once_or_later() -> None:
    """KAFKA-17315: a negative period removes it, also when it has expired and nobody has swept it yet."""
    found = Tokens()
    token = found.create()
    assert found.expire(token.hmac, NOW_MS, by=BOB, period=300) == NOW_MS + 300
    assert found.expire(token.hmac, NOW_MS, period=99_999) == NOW_MS + 10_000
    assert found.expire(token.hmac, NOW_MS + 7) == NOW_MS + 7 and found.tokens == {}
    assert refused(lambda: found.expire(token.hmac, NOW_MS)) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    old = found.create()
    assert refused(lambda: found.expire(old.hmac, NOW_MS + 1_001, by=CAROL)) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert found.expire(old.hmac, NOW_MS + 1_001) == NOW_MS + 1_001 and found.tokens == {}


def test_who_may_not_and_what_is_not_there() -> None:
    found = Tokens()
    code = found.create().hmac
    for call in (found.renew, found.expire):
        assert refused(lambda call=call: call(b"x" * 64, NOW_MS)) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND  # type: ignore[misc]
        assert refused(lambda call=call: call(code, NOW_MS, by=CAROL)) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH  # type: ignore[misc]
        assert refused(lambda call=call: call(code, NOW_MS + 1_001, period=1)) is ErrorCode.DELEGATION_TOKEN_EXPIRED  # type: ignore[misc]
    disabled = Tokens(secret=None)
    for refusal in (disabled.create, lambda: disabled.renew(code, NOW_MS), lambda: disabled.expire(code, NOW_MS)):
        assert refused(refusal) is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert refused(Tokens(level=13).create) is ErrorCode.UNSUPPORTED_VERSION
    assert refused(lambda: Tokens(level=13).renew(b"x", NOW_MS)) is ErrorCode.UNSUPPORTED_VERSION
    assert refused(lambda: Tokens(level=13).expire(b"x", NOW_MS)) is ErrorCode.UNSUPPORTED_VERSION


def test_what_has_expired_is_swept() -> None:
    found = Tokens()
    old, young = found.create(), found.create(NOW_MS + 500)
    assert found.sweep(NOW_MS + 1_000) is False and len(found.tokens) == 2
    assert found.sweep(NOW_MS + 1_001) is False and list(found.tokens) == [young.token_id]
    assert refused(lambda: found.renew(old.hmac, NOW_MS)) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    for _ in range(MAX_SWEPT):
        found.create()
    assert found.sweep(NOW_MS + 99_999) is True and len(found.tokens) == 1
    assert found.sweep(NOW_MS + 99_999) is False and found.tokens == {}


def test_a_decision_that_is_taken_back_is_forgotten() -> None:
    """As when a controller loses its leadership before a record is committed."""
    found = Tokens()
    kept = found.create()
    registry = found.state.registry
    registry.get_or_create_snapshot(found.offset)
    at = found.offset
    gone = found.create()
    found.expire(kept.hmac, NOW_MS)
    registry.revert_to(at)
    assert list(found.tokens) == [kept.token_id]
    assert refused(lambda: found.renew(gone.hmac, NOW_MS)) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert found.renew(kept.hmac, NOW_MS) == NOW_MS + 1_000
