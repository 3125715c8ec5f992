"""Logins: when sessions end, which answers belong to which requests, and who is let in (KIP-48, KIP-368, KIP-900)."""

from __future__ import annotations

from kraftlite.controller import token_control
from kraftlite.controller.token_control import TokenControl
from kraftlite.node import storage
from kraftlite.security.scram import ScramServer
from kraftlite.sim.workloads.logins import LoginClient
from kraftlite.wire.auth import SaslSession
from kraftlite.wire.token_credentials import TokenCredentials
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.patching import Patch


@mutant("expired-session-lives-on", "a request after the end of a session is answered", expects=("94",))
def expired_session_lives_on(patch: Patch) -> None:
    """KAFKA-9190, KAFKA-13848."""
    patch.edit(SaslSession, "_while_it_lasts", ("if now_ms > self._ends_ms:", "if False:"))


@mutant("session-outlives-its-token", "a session ends by its bound alone, and not with its credential", expects=("94",))
def session_outlives_its_token(patch: Patch) -> None:
    """KIP-368: whichever is first."""
    patch.edit(SaslSession, "_complete", ("if outcome.expires_ms is not None:", "if False:"))


@mutant("answer-of-another-request", "who logs in again between requests gets the number of the request before", expects=("94",))
def answer_of_another_request(patch: Patch) -> None:
    """KAFKA-9854: an answer is read as that to another request."""
    patch.edit(
        SaslSession,
        "_handshake",
        ("response_head(head.correlation_id,", "response_head(head.correlation_id - (self._proved is not None),"),
    )


@mutant("session-changes-hands", "who logs in again may be somebody else", expects=("95",))
def session_changes_hands(patch: Patch) -> None:
    """KIP-368: the principal stays."""
    patch.edit(SaslSession, "_check_unchanged", ("if before is not None and", "if False and before is not None and"))


@mutant("added-users-forgotten", "format leaves out the users that it was given", expects=("95",))
def added_users_forgotten(patch: Patch) -> None:
    """KAFKA-17636."""
    patch.edit(storage, "_credentials", ("return scram_records(add_scram, secrets.token_bytes)", "return []"))


@mutant("proof-not-checked", "whoever knows a name is let in by SCRAM", expects=("95",))
def proof_not_checked(patch: Patch) -> None:
    """RFC 5802: the stored key is compared."""
    patch.edit(
        ScramServer,
        "_final",
        ("if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key):", "if False:"),
    )


@mutant("expired-token-logs-in", "a token that has expired logs in until it is swept", expects=("95",))
def expired_token_logs_in(patch: Patch) -> None:
    """KIP-48."""
    patch.edit(TokenCredentials, "identity", (" or has_expired(token, ctx.clock.wall_ms())", ""))


@mutant("anybody-renews-a-token", "whoever has the code of a token renews or ends it", expects=("95",))
def anybody_renews_a_token(patch: Patch) -> None:
    """KIP-48: its owner and its renewers may."""
    patch.edit(token_control, "_check_may_renew", ("if not may_renew(token, requester):", "if False:"))


@mutant("token-renewed-for-ever", "a token that is renewed outlives its longest life", expects=("95",))
def token_renewed_for_ever(patch: Patch) -> None:
    """KIP-48."""
    patch.edit(TokenControl, "renew", ("min(token.max_timestamp_ms, wall_ms + period_ms)", "wall_ms + period_ms"))


def tokens_that_are_renewed(patch: Patch) -> None:
    """Tokens may live long, and their owners renew them for as long as they can."""
    patch.edit(
        LoginClient,
        "_request",
        ("rng.choice((-1, 3_000, 90_000))", "-1"),
        ("rng.choice((-1, 1_000, 60_000))", "60_000"),
        ("if what == 4:", "if True:"),
    )


@mutant(
    "token-renewed-for-any-time",
    "a token is renewed for as long as its owner asks for",
    expects=("95",),
    lens=tokens_that_are_renewed,
)
def token_renewed_for_any_time(patch: Patch) -> None:
    """KIP-48: delegation.token.expiry.time.ms bounds the time until the next renewal."""
    rule = "period_ms = min(period_ms, request.period_ms)"
    patch.edit(TokenControl, "renew", (rule, "period_ms = request.period_ms"))


@mutant("expired-tokens-stay", "tokens that have expired are never removed", expects=("liveness",))
def expired_tokens_stay(patch: Patch) -> None:
    """KIP-48: the metadata grows with every token that there ever was."""
    patch.edit(TokenControl, "sweep", ("if has_expired(self.tokens[token_id], wall_ms):", "if False:"))


@mutant("token-lives-as-long-as-asked", "a token lives for as long as who makes it asks for", expects=("95",))
def token_lives_as_long_as_asked(patch: Patch) -> None:
    """KIP-48: delegation.token.max.lifetime.ms is the administrator's, and bounds what is asked for."""
    rule = "lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)"
    patch.edit(TokenControl, "create", (rule, "lifetime_ms = request.max_lifetime_ms"))
