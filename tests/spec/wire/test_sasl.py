"""Clients that prove who they are, over real sockets. SE-10, SE-11, SE-12, SE-14, SE-15."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlite.client.security import Scram
from kraftlite.metadata.image import DelegationTokensImage
from kraftlite.metadata.pmap import PMap
from kraftlite.metadata.records import DelegationTokenRecord, UserScramCredentialRecord
from kraftlite.model.errors import ErrorCode
from kraftlite.model.principal import Principal
from kraftlite.node.listeners import NodeListeners
from kraftlite.runtime.trace.wire import ConnectionClosed
from kraftlite.security.listener_sasl import ListenerSasl
from kraftlite.security.oauthbearer import UnsecuredRules
from kraftlite.security.scram import NUMBERS, credential_from, salted_password
from kraftlite.wire import auth
from kraftlite.wire.auth import AUTHENTICATION_MS
from kraftlite.wire.listener import TOLD_PER_SECOND
from tests.harness.wire_fakes import Harness, RawClient, until
from tests.unit.security.test_mechanisms import bearer, token

NAMES = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
METADATA: Mapping[str, Any] = {
    "topics": [],
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}
PLAIN = b"\0alice\0secret"


def credential(name: str, mechanism: str, password: str) -> UserScramCredentialRecord:
    found = credential_from(mechanism, salted_password(mechanism, password, b"salt", 4096), b"salt", 4096)
    return UserScramCredentialRecord(name=name, mechanism=NUMBERS[mechanism], **found._asdict())


class Secured(Harness):
    """A listener with all mechanisms; alice's password is "secret"."""

    def __init__(self, *, reauth_ms: int = 0, listener: Mapping[str, Any] | None = None, **sasl: Any) -> None:
        settings = ListenerSasl(
            mechanisms=NAMES,
            plain_users={"alice": "secret", "bob": "secret"},
            oauth=UnsecuredRules(),
            max_reauth_ms=dict.fromkeys(NAMES, reauth_ms),
            **sasl,
        )
        self.known = tuple(credential("alice", it, "secret") for it in NAMES[1:3])
        super().__init__(listener={"sasl": settings, **(listener or {})}, scram=self.known)

    @property
    def gate(self) -> auth.SaslGate:
        assert self.listener.gate is not None
        return self.listener.gate

    @property
    def principals(self) -> list[Principal]:
        return [it.principal for it in self.listener._connections]

    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.tracer.events if isinstance(event, ConnectionClosed)]

    async def entered(self, message: bytes = PLAIN, mechanism: str = "PLAIN") -> tuple[RawClient, Any]:
        """A client that has authenticated in one message, and what it was told at last."""
        client = await self.client()
        assert (await client.call(17, 1, {"mechanism": mechanism})).error_code is not None
        return client, await client.call(36, 2, {"auth_bytes": message})

    async def delayed(self, client: RawClient, key: int, version: int, values: Mapping[str, Any]) -> Any:
        """An answer that comes only after the delay of failed authentications, and the end of the connection behind it."""
        sent = client.send(key, version, values)
        failed = self.gate.counts.failed + self.gate.counts.failed_again
        await until(lambda: self.gate.counts.failed + self.gate.counts.failed_again > failed)
        with pytest.raises(asyncio.TimeoutError):
            await client.read_frame(timeout=0.02)
        self.clock.advance(self.gate.sasl.failure_delay_ms)
        answer = await client.receive(key, version, sent)
        assert await client.closed()
        return answer


async def test_plain_gets_in_and_is_known_from_then_on() -> None:
    """SE-10, SE-11: ApiVersions may come first."""
    async with Secured() as h:
        client = await h.client()
        assert (await client.call(18, 4, {"client_software_name": "x", "client_software_version": "1"})).error_code == 0
        answer = await client.call(17, 1, {"mechanism": "PLAIN"})
        assert answer.error_code == 0 and tuple(answer.mechanisms) == NAMES
        answer = await client.call(36, 1, {"auth_bytes": PLAIN})
        assert answer.error_code == 0 and answer.auth_bytes == b"" and not answer.session_lifetime
        assert h.principals == [Principal("User", "alice")] and h.gate.unauthenticated == 0
        assert (await client.call(3, 9, METADATA)).brokers
        for key, values in ((17, {"mechanism": "PLAIN"}), (36, {"auth_bytes": PLAIN})):
            assert (await client.call(key, 1, values)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await client.call(3, 9, METADATA)).brokers, "it stays open"
        assert h.gate.counts.successful == 1 and h.gate.counts.failed == 0


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_scram_gets_in_by_the_credential_in_the_metadata(mechanism: str) -> None:
    """SE-12: a credential that changes or goes counts for new authentications."""
    async with Secured() as h:

        async def attempt(password: str) -> tuple[int, RawClient]:
            client, side = await h.client(), Scram(mechanism, "alice", password, nonce="client")
            await client.call(17, 1, {"mechanism": mechanism})
            answer = await client.call(36, 2, {"auth_bytes": side.answer(None)})
            proof = side.answer(answer.auth_bytes)
            assert proof is not None
            sent = client.send(36, 2, {"auth_bytes": proof})
            await until(lambda: h.gate.counts.failed + h.gate.counts.successful > total)
            h.clock.advance(100)
            answer = await client.receive(36, 2, sent)
            if answer.error_code == 0:
                assert side.answer(answer.auth_bytes) is None
            return int(answer.error_code), client

        total = 0
        code, first = await attempt("secret")
        assert code == 0 and h.principals == [Principal("User", "alice")]
        total = 1
        assert (await attempt("wrong"))[0] == ErrorCode.SASL_AUTHENTICATION_FAILED
        h.set_image(scram=[credential("alice", mechanism, "changed")])
        total = 2
        assert (await attempt("changed"))[0] == 0
        h.set_image(scram=[])
        nobody, side = await h.client(), Scram(mechanism, "alice", "changed", nonce="client")
        await nobody.call(17, 1, {"mechanism": mechanism})
        answer = await nobody.call(36, 2, {"auth_bytes": side.answer(None)})
        assert answer.error_code == 0, "nothing tells that she is gone"
        answer = await h.delayed(nobody, 36, 2, {"auth_bytes": side.answer(answer.auth_bytes)})
        told = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED and answer.error_message == told
        assert (await first.call(3, 9, METADATA)).brokers, "who is in stays in"


async def test_a_handshake_of_version_0_is_followed_by_bare_tokens() -> None:
    """SE-10."""
    async with Secured() as h:
        client = await h.client()
        await client.call(17, 0, {"mechanism": "PLAIN"})
        client.send_frame(PLAIN)
        assert await client.read_frame() == b""
        assert (await client.call(3, 9, METADATA)).brokers
        assert h.gate.counts.successful_old_clients == 1
        other = await h.client()
        await other.call(17, 0, {"mechanism": "PLAIN"})
        other.send_frame(b"\0alice\0wrong")
        await until(lambda: h.gate.counts.failed == 1)
        h.clock.advance(100)
        assert await other.closed(), "without a word"


async def test_a_wrong_password_is_told_after_the_delay() -> None:
    """SE-10, SE-11, KIP-306."""
    async with Secured(failure_delay_ms=700) as h:
        client = await h.client()
        await client.call(17, 1, {"mechanism": "PLAIN"})
        answer = await h.delayed(client, 36, 2, {"auth_bytes": b"\0alice\0hunter2"})
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Authentication failed: Invalid username or password"
        assert h.reasons == ["authentication failed: PLAIN: Authentication failed: Invalid username or password"]
        assert "hunter2" not in repr(h.tracer.events)


async def test_an_unknown_mechanism_is_told_which_are_enabled() -> None:
    """SE-10."""
    async with Secured() as h:
        client = await h.client()
        answer = await h.delayed(client, 17, 1, {"mechanism": "GSSAPI"})
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM and tuple(answer.mechanisms) == NAMES
        long = await h.client()
        await h.delayed(long, 17, 1, {"mechanism": "x" * 30_000})
        assert all(len(reason) < 1000 for reason in h.reasons)


@pytest.mark.parametrize(("key", "version", "values"), [(3, 9, METADATA), (36, 2, {"auth_bytes": PLAIN})])
async def test_nothing_else_is_served_before(key: int, version: int, values: Mapping[str, Any]) -> None:
    """SE-10."""
    async with Secured() as h:
        client = await h.client()
        client.send(key, version, values)
        assert await client.closed()
        again = await h.client()
        await again.call(18, 4, {"client_software_name": "x", "client_software_version": "1"})
        again.send(18, 4, {"client_software_name": "x", "client_software_version": "1"})
        assert await again.closed(), "ApiVersions is answered once"


async def test_a_request_in_the_middle_is_illegal() -> None:
    """SE-10."""
    async with Secured() as h:
        client = await h.client()
        await client.call(17, 1, {"mechanism": "PLAIN"})
        answer = await h.delayed(client, 60, 0, {"include_cluster_authorized_operations": False})
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        silent = await h.client()
        await silent.call(17, 1, {"mechanism": "PLAIN"})
        silent.send(30, 2, {"creations": []})
        await until(lambda: h.gate.counts.failed == 2)
        h.clock.advance(100)
        assert await silent.closed(), "CreateAcls has no place for an error"


@pytest.mark.parametrize("version", [4, 9, 12])
async def test_a_request_for_metadata_in_the_middle_is_told_for_each_topic(version: int) -> None:
    """SE-10, as Kafka's MetadataRequest tells an error: what aiokafka and KafkaJS send when their token was refused."""
    topic = {"name": "events", "topic_id": None} if version >= 10 else {"name": "events"}
    for topics, names in (([topic], ["events"]), (None, []), ([], [])):
        async with Secured() as h:
            client = await h.client()
            await client.call(17, 1, {"mechanism": "OAUTHBEARER"})
            answer = await client.call(36, 1, {"auth_bytes": bearer("x.y.")})
            assert answer.error_code == 0 and b"invalid_token" in answer.auth_bytes
            answer = await h.delayed(client, 3, version, {**METADATA, "topics": topics})
            assert not answer.brokers and [it.name for it in answer.topics] == names
            assert {it.error_code for it in answer.topics} <= {ErrorCode.ILLEGAL_SASL_STATE}


async def test_a_token_that_is_refused_is_told_and_then_closed() -> None:
    """SE-14."""
    async with Secured() as h:
        client, answer = await h.entered(bearer("x.y."), "OAUTHBEARER")
        assert answer.error_code == 0 and answer.auth_bytes == b'{"status":"invalid_token"}'
        other, _ = await h.entered(bearer("x.y."), "OAUTHBEARER")
        told = await h.delayed(other, 36, 2, {"auth_bytes": b"\1\1"})
        assert told.error_message.endswith("due to invalid credentials with SASL mechanism OAUTHBEARER"), "as Sarama is told"
        answer = await h.delayed(client, 36, 2, {"auth_bytes": b"\1"})
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == '{"status":"invalid_token"}'


# --- sessions


def lifetime_of(answer: Any) -> int:
    return round(answer.session_lifetime.total_seconds() * 1000)


async def test_a_session_ends_with_its_token_or_with_its_bound() -> None:
    """SE-15: the earlier of the two."""
    for reauth_ms, wanted in ((0, 60_000), (90_000, 60_000), (5_000, 5_000)):
        async with Secured(reauth_ms=reauth_ms) as h:
            text = token(sub="alice", exp=h.clock.wall_ms() // 1000 + 60)
            _client, answer = await h.entered(bearer(text), "OAUTHBEARER")
            assert lifetime_of(answer) == wanted


async def test_a_client_that_authenticates_again_stays() -> None:
    """SE-15, KIP-368, KAFKA-9854: between requests, whose answers keep their order."""
    async with Secured(reauth_ms=10_000) as h:
        client, answer = await h.entered()
        assert lifetime_of(answer) == 10_000
        for _ in range(3):
            h.clock.advance(9_000)
            sent = [client.send(3, 9, METADATA), client.send(17, 1, {"mechanism": "PLAIN"})]
            assert (await client.receive(3, 9, sent[0])).brokers
            assert (await client.receive(17, 1, sent[1])).error_code == 0
            assert lifetime_of(await client.call(36, 2, {"auth_bytes": PLAIN})) == 10_000
        assert (await client.call(3, 9, METADATA)).brokers
        assert h.gate.counts.successful_again == 3 and h.gate.counts.expired_killed == 0


async def test_a_session_that_is_over_is_closed_with_the_next_request() -> None:
    """SE-15."""
    async with Secured(reauth_ms=10_000) as h:
        client, _ = await h.entered()
        h.clock.advance(10_000)
        assert (await client.call(3, 9, METADATA)).brokers, "it lasts to its end"
        h.clock.advance(1)
        client.send(3, 9, METADATA)
        assert await client.closed()
        assert h.gate.counts.expired_killed == 1 and "session is over" in h.reasons[0]
        late, _ = await h.entered()
        h.clock.advance(20_000)
        await late.call(17, 1, {"mechanism": "PLAIN"})
        assert lifetime_of(await late.call(36, 2, {"auth_bytes": PLAIN})) == 10_000, "it may still begin again"


async def test_nobody_becomes_somebody_else_nor_changes_the_mechanism() -> None:
    """SE-15."""
    async with Secured(reauth_ms=10_000) as h:
        client, _ = await h.entered()
        await client.call(17, 1, {"mechanism": "PLAIN"})
        answer = await h.delayed(client, 36, 2, {"auth_bytes": b"\0bob\0secret"})
        assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
        other, _ = await h.entered()
        assert (await other.call(17, 1, {"mechanism": "SCRAM-SHA-256"})).error_code == 0
        other.send(36, 2, {"auth_bytes": PLAIN})
        await until(lambda: h.gate.counts.failed_again == 2)
        h.clock.advance(100)
        assert await other.closed()
        assert "not supported for re-authentication of mechanism 'PLAIN'" in h.reasons[-1]


async def test_beginning_again_at_once_is_illegal() -> None:
    """SE-15: a second re-authentication within a second."""
    async with Secured(reauth_ms=10_000) as h:
        client, _ = await h.entered()
        await client.call(17, 1, {"mechanism": "PLAIN"})
        await client.call(36, 2, {"auth_bytes": PLAIN})
        h.clock.advance(999)
        assert (await client.call(17, 1, {"mechanism": "PLAIN"})).error_code == ErrorCode.ILLEGAL_SASL_STATE
        h.clock.advance(1)
        assert (await client.call(17, 1, {"mechanism": "PLAIN"})).error_code == 0


# --- those who do not authenticate


async def test_who_does_not_authenticate_in_time_is_cut() -> None:
    async with Secured() as h:
        idle, (good, _) = await h.client(), await h.entered()
        await until(lambda: h.listener.connection_count == 2)
        h.clock.advance(AUTHENTICATION_MS + 10_000)
        assert await idle.closed()
        assert (await good.call(3, 9, METADATA)).brokers
        assert f"not authenticated within {AUTHENTICATION_MS + 100} ms" in h.reasons


async def test_the_oldest_of_too_many_makes_room() -> None:
    async with Secured(most_unauthenticated=3) as h:
        first, (good, _) = await h.client(), await h.entered()
        await until(lambda: h.gate.unauthenticated == 1)
        rest = [await h.client() for _ in range(3)]
        assert await first.closed()
        assert (await good.call(3, 9, METADATA)).brokers, "who is in is not counted"
        assert (await rest[0].call(17, 1, {"mechanism": "PLAIN"})).error_code == 0
        assert h.gate.unauthenticated == 3


async def test_a_message_longer_than_its_bound_closes_and_large_requests_come_afterwards() -> None:
    """SE-10."""
    async with Secured(max_receive_bytes=1000) as h:
        client = await h.client()
        client.send_bytes(struct.pack(">i", 1001))
        assert await client.closed()
        good, _ = await h.entered()
        many = [{"name": f"{at}-{chr(110) * 200}", "topic_id": None} for at in range(100)]
        assert len((await good.call(3, 9, {**METADATA, "topics": many})).topics) == 100


async def test_what_the_unauthenticated_hold_is_bounded() -> None:
    async with Secured(unauthenticated_bytes=200_000) as h:
        good, _ = await h.entered()
        greedy = [await h.client() for _ in range(20)]
        for client in greedy:
            client.send_bytes(struct.pack(">i", 500_000) + bytes(300_000))
        await until(lambda: h.gate._memory.waiting > 10)
        assert h.gate._memory.held_bytes <= 200_000 + 524_288
        assert h.listener.share.receive.held_bytes == 0
        assert (await good.call(3, 9, METADATA)).brokers
        assert (await h.entered())[1].error_code == 0


GARBAGE = (b"", b"\0", b"\xff" * 50, b"\0alice", b"n,,n=alice,r=x", b"n,,\1auth=Bearer x\1\1", bytes(range(256)) * 400)


@pytest.mark.parametrize("mechanism", NAMES)
async def test_garbage_costs_its_connection_alone(mechanism: str) -> None:
    async with Secured(failure_delay_ms=0) as h:
        for version in (0, 1):
            for message in GARBAGE:
                client = await h.client()
                await client.call(17, version, {"mechanism": mechanism})
                for _ in range(3):
                    if version:
                        client.send(36, 2, {"auth_bytes": message})
                    else:
                        client.send_frame(message)
                client.send_bytes(struct.pack(">i", 6) + b"\0\x24\0\2ab")
                for _ in range(5):
                    await asyncio.sleep(0.001)
                    h.clock.advance(1)
                await client.closed()
        assert h.gate.counts.successful == 0
        assert (await h.entered())[1].error_code == 0


async def test_a_node_counts_authentications_over_its_listeners() -> None:
    """SE-15, KIP-368."""
    async with Secured(reauth_ms=10) as h:
        client, _ = await h.entered()
        h.clock.advance(11)
        client.send(3, 9, METADATA)
        assert await client.closed()
        node = SimpleNamespace(for_clients=[h.listener, SimpleNamespace(gate=None), h.listener])
        counted = partial(NodeListeners.authentications, node)  # type: ignore[arg-type]
        assert (counted("successful"), counted("expired_killed"), counted("failed")) == (2, 2, 0)


async def test_a_flood_of_failures_is_told_by_its_number() -> None:
    """A stranger may fail as often as the network carries it: the log gets some lines a second, and then how many there were."""
    async with Secured() as h:

        async def failed(times: int) -> None:
            for _ in range(times):
                client = await h.client()
                client.send(3, 9, METADATA)
                assert await client.closed()

        await failed(3 * TOLD_PER_SECOND)
        assert len(h.reasons) == TOLD_PER_SECOND
        h.clock.advance(1_000)
        await failed(1)
        last = next(event for event in reversed(h.tracer.events) if isinstance(event, ConnectionClosed))
        assert last.left_out == 2 * TOLD_PER_SECOND
        await failed(1)
        last = next(event for event in reversed(h.tracer.events) if isinstance(event, ConnectionClosed))
        assert last.left_out is None and len(h.reasons) == TOLD_PER_SECOND + 2


@pytest.mark.parametrize("mechanism", NAMES)
async def test_16_mib_before_authentication_are_not_even_received(mechanism: str) -> None:
    """The size is refused as soon as it is announced (`sasl.server.max.receive.size`), bare or in SaslAuthenticate."""
    async with Secured() as h:
        for version in (0, 1):
            client = await h.client()
            await client.call(17, version, {"mechanism": mechanism})
            client.send_bytes(struct.pack(">i", 16 << 20))
            assert await client.closed()
        assert len(h.reasons) == 2 and all(str(16 << 20) in reason for reason in h.reasons)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_name_that_is_longer_than_an_answer_is_cut_in_it(version: int) -> None:
    """SE-15: a text of SaslAuthenticate v0 and v1 has 32,767 bytes at most, and a token may name longer ones."""
    async with Secured(reauth_ms=60_000) as h:
        ends = h.clock.wall_ms() // 1000 + 600
        client, _ = await h.entered(bearer(token(sub="a" * 35_000, exp=ends)), "OAUTHBEARER")
        h.clock.advance(1_001)
        await client.call(17, 1, {"mechanism": "OAUTHBEARER"})
        answer = await h.delayed(client, 36, version, {"auth_bytes": bearer(token(sub="b" * 35_000, exp=ends))})
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message.startswith("Cannot change principals") and len(answer.error_message) < 500
        assert len(h.reasons[-1]) < 500


async def test_a_session_cannot_be_taken_over_by_another_user_or_by_half_an_exchange() -> None:
    """SE-15: what comes in the middle of a second authentication is not served any more, to neither user."""
    async with Secured(reauth_ms=60_000) as h:
        client, _ = await h.entered()
        h.clock.advance(1_001)
        await client.call(17, 1, {"mechanism": "PLAIN"})
        answer = await h.delayed(client, 36, 2, {"auth_bytes": b"\0bob\0secret"})
        assert "Cannot change principals" in answer.error_message
        client, _ = await h.entered()
        h.clock.advance(1_001)
        await client.call(17, 1, {"mechanism": "PLAIN"})
        failed = h.gate.counts.failed_again
        assert not (await h.delayed(client, 3, 9, METADATA)).brokers
        assert h.gate.counts.failed_again == failed + 1


async def test_se_16_tokens_of_odd_names_do_not_hide_the_others() -> None:
    """Anybody may name a renewer without a name, and names may have blanks at their ends."""

    def issued(token_id: str, owner: str, *renewers: str) -> DelegationTokenRecord:
        times = {"issue_timestamp_ms": 1, "max_timestamp_ms": 3, "expiration_timestamp_ms": 2}
        return DelegationTokenRecord(owner=owner, requester=owner, renewers=renewers, token_id=token_id, **times)

    tokens = [issued("a", "User:alice", "User:"), issued("b", "User: alice "), issued("c", ":x"), issued("d", "User:a:b")]
    async with Secured() as h:
        object.__setattr__(h.context.config, "values", {**h.context.config.values, "delegation.token.secret.key": "hunter2"})
        found = DelegationTokensImage(tokens=PMap({it.token_id: it for it in tokens}))
        h.metadata.set_image(replace(h.metadata.image, delegation_tokens=found))
        client, _ = await h.entered()
        answer = await client.call(41, 2, {"owners": None})
        assert answer.error_code == 0
        owners = {it.token_id: (it.principal_type, it.principal_name) for it in answer.tokens}
        assert owners == {"a": ("User", "alice"), "b": ("User", " alice "), "c": ("", "x"), "d": ("User", "a:b")}
        (renewer,) = answer.tokens[0].renewers
        assert (renewer.principal_type, renewer.principal_name) == ("User", "")
