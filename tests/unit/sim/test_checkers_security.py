"""The checkers of rights and quotas fail when they must; the door for bytes is the production one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kraftlite.metadata import records as r
from kraftlite.model.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.controller import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    MutationClient,
)
from kraftlite.model.messages.methods import CREATE_TOPICS
from kraftlite.model.messages.security import QuotaEntityPart
from kraftlite.model.principal import USER, Principal
from kraftlite.protocol.kio_codec import encode_request, encode_response
from kraftlite.protocol.primitives import response_head
from kraftlite.security.authorizer import Decision, Reason
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.catalog_security import SECURITY
from kraftlite.sim.checkers.described_rights import EntriesDescribed, TokensDescribed
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.i90_removals import RemovalsDecided
from kraftlite.sim.checkers.i90_rights import RightsDecided, RightsInForce, Rules
from kraftlite.sim.checkers.i92_mutations import MutationsBounded
from kraftlite.sim.checkers.i92_quotas import Limit, QuotasKept, limit_of
from kraftlite.sim.checkers.i94_sessions import LoginsDeserved, SessionsEnd
from kraftlite.sim.checkers.model import MetadataState
from kraftlite.sim.services.doors import DOOR, DoorAnswer, DoorAsk, error_codes
from kraftlite.sim.services.logins import LASTS_MS, LOGIN, PASSWORDS, PLAIN, LoginAnswer, LoginAsk
from kraftlite.sim.themes import SECURITY as THEME
from kraftlite.sim.workloads.logins import AUTHENTICATE, CREATE, DESCRIBE, HANDSHAKE, METADATA, frame
from kraftlite.sim.workloads.removals import DELETE, GROW
from kraftlite.sim.workloads.rights_asked import EVERYTHING
from kraftlite.sim.workloads.security import LIST, TWICE, body_of
from kraftlite.sim.workloads.security_settings import ADMIN, vary
from kraftlite.simhost.network import Exchange
from tests.harness.doors import TOPIC, authorizer, entry, knock, produce, served, settled
from tests.harness.violations import Cases, assert_found
from tests.harness.watched_cluster import SMALL, WatchedCluster

CASES: Cases[WatchedCluster] = Cases()
CLOSED = vary(SMALL, seed=1)
SHAPE = replace(CLOSED, config={**CLOSED.config, "allow.everyone.if.no.acl.found": "false"})


@CASES.breaks(RightsDecided, "and entries too many: .*, missing: .*alice")
def an_entry_that_the_authorizer_has_not(cluster: WatchedCluster) -> None:
    settled(cluster, entry())
    authorizer(cluster).update({UUID(int=1): None})
    cluster.at_end()


@CASES.breaks(RightsDecided, "the entries say that it is denied")
def a_decision_that_no_entry_makes(cluster: WatchedCluster) -> None:
    cluster.create_topic(TOPIC, 1)
    settled(cluster)
    question = (USER, "alice", "10.0.0.1", Operation.WRITE, ResourceType.TOPIC, TOPIC)
    authorizer(cluster)._decided[question] = Decision(True, Reason.DEFAULT_ALLOW)
    knock(cluster, produce())


@CASES.breaks(RightsDecided, "the entries say that it is allowed")
def a_refusal_that_no_entry_makes(cluster: WatchedCluster) -> None:
    cluster.create_topic(TOPIC, 1)
    settled(cluster, entry())
    question = (USER, "alice", "10.0.0.1", Operation.WRITE, ResourceType.TOPIC, TOPIC)
    authorizer(cluster)._decided[question] = Decision(False, Reason.DEFAULT_DENY)
    knock(cluster, produce())


@CASES.breaks(RightsDecided, "a super user needs no entries")
def a_super_user_waits_for_entries(cluster: WatchedCluster) -> None:
    authorizer(cluster).is_loaded, authorizer(cluster)._supers = False, frozenset()
    knock(cluster, produce("granter-1", ADMIN))


@CASES.breaks(RightsDecided, "has no entries yet, though all is well")
def entries_that_are_never_loaded(cluster: WatchedCluster) -> None:
    authorizer(cluster).is_loaded = False
    cluster.at_end()


@CASES.breaks(RightsDecided, "is in offset .* of the metadata log, and was denied: node 4 answers produce")
def a_denied_request_has_an_effect(cluster: WatchedCluster) -> None:
    cluster.create_topic(TOPIC, 1)
    answer = knock(cluster, produce())
    assert "TOPIC_AUTHORIZATION_FAILED" in error_codes(produce(), answer)
    cluster.write(entry(resource_name="alice-1"))


@CASES.breaks(RightsDecided, "alice-2 is in other-0 of node .*, and was denied")
def a_denied_record_is_in_a_log(cluster: WatchedCluster) -> None:
    cluster.create_topic(TOPIC, 2)
    settled(cluster, entry())
    knock(cluster, produce("alice-2"))
    (checker,) = [it for it in cluster.checkers if isinstance(it, RightsDecided)]
    checker._denied["alice-2"] = "here"
    checker._allowed.clear()
    cluster.at_end()


DAVE = Principal(USER, "dave")


def removal(kind: str = DELETE, topic_id: UUID | None = None) -> DoorAsk:
    """A request of dave for the topic gone-a."""
    topic: dict[str, Any] = {"name": None if topic_id else "gone-a", "topic_id": topic_id}
    if kind == GROW:
        topic = {"name": "gone-a", "count": 2, "assignments": None}
    more = {"validate_only": False} if kind == GROW else {}
    api_key, version = (37, 3) if kind == GROW else (20, 6)
    body = body_of(api_key, version, {"topics": [topic], "timeout": 2_000, **more})
    about = {"principal": DAVE, "kind": kind, "name": "gone-a", "token": "dave-1", "body": body}
    return replace(produce(), connection="dave", api_key=api_key, version=version, **about)


def of_dave(number: int, operation: Operation, permission: Permission = Permission.ALLOW) -> r.AccessControlEntryRecord:
    return entry(number, permission, resource_name="gone-a", principal="User:dave", operation=operation)


def removed(cluster: WatchedCluster, ask: DoorAsk, error: ErrorCode, name: str | None = "gone-a") -> None:
    """A checker is told that broker 4 has answered so."""
    one: dict[str, Any] = {"name": name, "error_code": error, "error_message": None}
    about: dict[str, Any] = {"results": [one]}
    if ask.kind == DELETE:
        about = {"responses": [{**one, "topic_id": UUID(int=0)}]}
    told = encode_response(ask.api_key, ask.version, {"throttle_time": 0, **about})
    response = (response_head(1, len(told), True) + told)[4:]
    offset = settled(cluster)
    exchange: Any = Exchange(NodeId(1_000), NodeId(4), DOOR, ask, cluster.loop.create_future())
    answer = DoorAnswer(response=response, closed="", first=offset, last=offset, taken_ms=0, muted_ms=0)
    cluster.checkers[0].on_arrival(exchange)
    cluster.checkers[0].on_served(exchange, answer)


@CASES.breaks(RemovalsDecided, "NONE; the entries say that it is denied")
def a_topic_is_deleted_for_who_may_only_delete_it_unseen(cluster: WatchedCluster) -> None:
    settled(cluster, of_dave(1, Operation.DELETE), of_dave(2, Operation.DESCRIBE, Permission.DENY))
    removed(cluster, removal(topic_id=UUID(int=7)), ErrorCode.NONE)
    removed(cluster, removal(), ErrorCode.NONE)


@CASES.breaks(RemovalsDecided, "INVALID_PARTITIONS; the entries say that it is denied")
def a_stranger_hears_how_many_partitions_there_are(cluster: WatchedCluster) -> None:
    removed(cluster, removal(GROW), ErrorCode.INVALID_PARTITIONS)


@CASES.breaks(RemovalsDecided, "TOPIC_AUTHORIZATION_FAILED; the entries say that it is allowed")
def who_may_delete_is_refused(cluster: WatchedCluster) -> None:
    settled(cluster, of_dave(1, Operation.DELETE))
    removed(cluster, removal(), ErrorCode.TOPIC_AUTHORIZATION_FAILED)


@CASES.breaks(RemovalsDecided, "its name is none of their business")
def a_refusal_tells_the_name(cluster: WatchedCluster) -> None:
    removed(cluster, removal(topic_id=UUID(int=7)), ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None)
    removed(cluster, removal(topic_id=UUID(int=7)), ErrorCode.TOPIC_AUTHORIZATION_FAILED)


@CASES.breaks(RemovalsDecided, "nothing of it may be told")
def a_stranger_hears_that_there_is_no_topic(cluster: WatchedCluster) -> None:
    removed(cluster, removal(), ErrorCode.REQUEST_TIMED_OUT)
    removed(cluster, removal(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@CASES.breaks(RemovalsDecided, "carries out what was denied: node 4 answers delete topics gone-a")
def a_denied_topic_is_deleted(cluster: WatchedCluster) -> None:
    cluster.create_topic("gone-a", 1)
    removed(cluster, removal(), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    (topic_id,) = [it.topic_id for it in cluster.controller().state.replication.topics.values() if it.name == "gone-a"]
    cluster.write(r.RemoveTopicRecord(topic_id=topic_id))


def test_rights_on_removals_are_those_of_the_door(cluster: WatchedCluster) -> None:
    cluster.create_topic("gone-a", 1)
    asks = (removal(), removal(GROW), removal(topic_id=UUID(int=7)))
    settled(cluster)
    assert [error_codes(it, knock(cluster, it))[-1] for it in asks] == [
        "TOPIC_AUTHORIZATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "UNKNOWN_TOPIC_ID",
    ]
    settled(cluster, of_dave(1, Operation.ALL))
    assert [error_codes(it, knock(cluster, it))[-1] for it in (removal(GROW), removal())] == ["NONE", "NONE"]
    cluster.at_end()


@CASES.breaks(RightsInForce, "by offset 1, and has known for .* ms that offset .* is committed")
def a_right_outlives_its_end(cluster: WatchedCluster) -> None:
    settled(cluster, entry())
    cluster.go(5_000)
    served(cluster, produce(), first=1, last=1)


QUOTA = r.ClientQuotaRecord(entity=(QuotaEntityPart(type="user", name="alice"),), key="producer_byte_rate", value="100.0")


@CASES.breaks(QuotasKept, r"throttled for 50 ms, and none of \[.*bound=100.0.*\] is used up")
def a_client_is_throttled_that_is_not_over_its_quota(cluster: WatchedCluster) -> None:
    settled(cluster, QUOTA)
    served(cluster, produce(), muted_ms=50)


@CASES.breaks(QuotasKept, r"bytes in 11000 ms, the quota of \('alice', ''\) is 100.0 a second")
def a_client_goes_on_over_its_quota(cluster: WatchedCluster) -> None:
    settled(cluster, QUOTA)
    for number in range(40):
        served(cluster, produce(size=1_000), taken_ms=1_000 * number)


def made(cluster: WatchedCluster, error: ErrorCode, times: int = 1) -> None:
    """A checker is told that the controller has answered so often to a topic of three partitions."""
    settled(cluster, replace(QUOTA, key="controller_mutation_rate", value="0.5"))
    topic = CreatableTopic(name="t", num_partitions=3, replication_factor=1, assignments=(), configs=())
    client = MutationClient(user="alice", client_id="c-0", strict=True)
    request = CreateTopicsRequest(topics=(topic,), validate_only=False, timeout_ms=1_000, quota=client)
    done = CreatableTopicResult(name="t", error=error, num_partitions=3)
    for _ in range(times):
        controller = NodeId(cluster.leader_id())
        exchange: Any = Exchange(NodeId(4), controller, CREATE_TOPICS, request, cluster.loop.create_future())
        cluster.checkers[0].on_arrival(exchange)
        cluster.checkers[0].on_served(exchange, CreateTopicsResponse(topics=(done,)))


@CASES.breaks(
    MutationsBounded, r"with NONE, and \('alice', ''\) may change 0.5 partitions a second: it has -0.500 tokens left at most"
)
def a_client_makes_more_than_it_may(cluster: WatchedCluster) -> None:
    made(cluster, ErrorCode.NONE, times=3)


@CASES.breaks(MutationsBounded, "with THROTTLING_QUOTA_EXCEEDED, and .*: it has 5.500 tokens left at least")
def a_client_is_refused_what_it_may(cluster: WatchedCluster) -> None:
    made(cluster, ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def logged_in(cluster: WatchedCluster, user: str, password: str | None = None, connection: int = 1, client: str = "c") -> Any:
    """Log in by PLAIN; returns the answer."""
    message = f"\0{user}\0{password or PASSWORDS[user]}".encode()
    frames = (frame(HANDSHAKE, 1, {"mechanism": PLAIN}), frame(AUTHENTICATE, 2, {"auth_bytes": message}))
    ask = LoginAsk(client=client, connection=connection, frames=frames, knows=password is None)
    return cluster.do(cluster.client.call(Endpoint("n4", 9092), LOGIN, ask, 5_000))


NOT_WANTED = (
    "allow_auto_topic_creation",
    "include_cluster_authorized_operations",
    "include_topic_authorized_operations",
)
WORK = frame(METADATA, 3, {"topics": [], **dict.fromkeys(NOT_WANTED, False)})


def work_seen(cluster: WatchedCluster, taken_ms: int, **fields: Any) -> None:
    """A checker is told that broker 4 has taken a request for metadata then, and answered it."""
    offset = settled(cluster)
    told = encode_response(*METADATA, {"brokers": [], "cluster_id": "", "controller_id": 1, "topics": [], "throttle_time": 0})
    answers = ((response_head(3, len(told), True) + told)[4:],)
    about: dict[str, Any] = {"answers": answers, "taken": ((taken_ms, 0),), "closed": "", "first": offset, "last": offset}
    ask = LoginAsk(client="c", connection=1, frames=(WORK,))
    exchange: Any = Exchange(NodeId(1_000), NodeId(4), LOGIN, ask, cluster.loop.create_future())
    cluster.checkers[0].on_served(exchange, LoginAnswer(**{**about, **fields}))


@CASES.breaks(SessionsEnd, "api key 3 of dora is answered .* ms after the end of its session")
def a_session_without_an_end(cluster: WatchedCluster) -> None:
    at_ms, _ = logged_in(cluster, "dora").taken[-1]
    work_seen(cluster, at_ms + LASTS_MS[PLAIN] + 1)


@CASES.breaks(SessionsEnd, "api key 3 is answered to a client that has not said who it is")
def an_answer_to_a_stranger(cluster: WatchedCluster) -> None:
    work_seen(cluster, 1)


@CASES.breaks(SessionsEnd, "the session of dora is cut at .* ms; its end is")
def a_session_that_is_cut_before_its_end(cluster: WatchedCluster) -> None:
    at_ms, _ = logged_in(cluster, "dora").taken[-1]
    work_seen(cluster, at_ms + LASTS_MS[PLAIN], answers=(), closed="its session is over, it is said")


@CASES.breaks(SessionsEnd, "request 3 of api key 3 is answered under the number 7")
def an_answer_to_another_request(cluster: WatchedCluster) -> None:
    at_ms, _ = logged_in(cluster, "dora").taken[-1]
    told = encode_response(*METADATA, {"brokers": [], "cluster_id": "", "controller_id": 1, "topics": [], "throttle_time": 0})
    work_seen(cluster, at_ms, answers=((response_head(7, len(told), True) + told)[4:],))


@CASES.breaks(LoginsDeserved, "dora is let in by PLAIN with a wrong password")
def a_wrong_password_is_taken(cluster: WatchedCluster) -> None:
    logged_in(cluster, "dora", PASSWORDS["dora"])


@CASES.breaks(LoginsDeserved, "of nobody: frieda is refused by PLAIN")
def a_password_is_refused(cluster: WatchedCluster) -> None:
    message = b"\0frieda\0right"
    frames = (frame(HANDSHAKE, 1, {"mechanism": PLAIN}), frame(AUTHENTICATE, 2, {"auth_bytes": message}))
    ask = LoginAsk(client="c", connection=1, frames=frames)
    cluster.do(cluster.client.call(Endpoint("n4", 9092), LOGIN, ask, 5_000))


TOKEN = r.DelegationTokenRecord(
    owner="User:dora",
    requester="User:dora",
    renewers=(),
    issue_timestamp_ms=1,
    max_timestamp_ms=5,
    expiration_timestamp_ms=6,
    token_id="a-token",
)


@CASES.breaks(LoginsDeserved, "lasts longer than its longest life")
def a_token_for_ever(cluster: WatchedCluster) -> None:
    cluster.write(TOKEN)


@CASES.breaks(LoginsDeserved, "may live for 40001 ms, configured are 40000")
def a_token_that_may_be_renewed_for_too_long(cluster: WatchedCluster) -> None:
    cluster.write(replace(TOKEN, max_timestamp_ms=40_002))


@CASES.breaks(LoginsDeserved, "and first has no SCRAM-SHA-256")
def a_user_of_format_is_forgotten(cluster: WatchedCluster) -> None:
    settled(cluster, r.RemoveUserScramCredentialRecord(name="first", mechanism=1))


def told(api: tuple[int, int], values: dict[str, Any], number: int = 1) -> bytes:
    body = encode_response(*api, values)
    return (response_head(number, len(body), True) + body)[4:]


def of_door(kind: str, api: tuple[int, int], values: Mapping[str, Any]) -> DoorAsk:
    key, version = api
    return replace(produce(), kind=kind, api_key=key, version=version, body=encode_request(*api, values))


@CASES.breaks(EntriesDescribed, r"with \[\]; there are .*AccessControlEntryRecord.*alice")
def an_entry_that_nobody_is_told_of(cluster: WatchedCluster) -> None:
    settled(cluster, entry())
    asked = of_door(LIST, (29, 3), EVERYTHING)
    nothing = {"throttle_time": 0, "error_code": 0, "error_message": "", "resources": []}
    served(cluster, asked, response=told((29, 3), nothing))


@CASES.breaks(EntriesDescribed, "which was there already")
def an_entry_that_is_there_twice(cluster: WatchedCluster) -> None:
    settled(cluster, entry(), replace(entry(), id=UUID(int=77)))


@CASES.breaks(EntriesDescribed, "answers .* with .*other.*other")
def a_topic_that_is_named_twice_grows(cluster: WatchedCluster) -> None:
    topic = {"name": TOPIC, "count": 3, "assignments": None}
    asked = of_door(TWICE, (37, 3), {"topics": [topic, topic], "timeout": 1_000, "validate_only": False})
    result = {"name": TOPIC, "error_code": 0, "error_message": None}
    served(cluster, asked, response=told((37, 3), {"throttle_time": 0, "results": [result, result]}))


def tokens_seen(cluster: WatchedCluster, api: tuple[int, int], asked: dict[str, Any], answer: dict[str, Any]) -> None:
    """Broker 4 lets dora in, and a checker is told that it has answered her this."""
    logged_in(cluster, "dora")
    offset = settled(cluster)
    ask = LoginAsk(client="c", connection=1, frames=(frame(api, 3, asked),))
    exchange: Any = Exchange(NodeId(1_000), NodeId(4), LOGIN, ask, cluster.loop.create_future())
    answers = (told(api, answer, 3),)
    about = LoginAnswer(answers=answers, taken=((1, 1),), closed="", first=offset, last=offset)
    cluster.checkers[0].on_served(exchange, about)


@CASES.breaks(TokensDescribed, "dora asks for tokens of None, and hears of {}; there are .*a-token")
def a_token_that_its_owner_is_not_told_of(cluster: WatchedCluster) -> None:
    settled(cluster, replace(TOKEN, expiration_timestamp_ms=5))
    tokens_seen(cluster, DESCRIBE, {"owners": None}, {"error_code": 0, "tokens": [], "throttle_time": 0})


@CASES.breaks(TokensDescribed, "dora asks for a token of User:emil, and hears NONE")
def a_token_for_somebody_else(cluster: WatchedCluster) -> None:
    owner = {"owner_principal_type": USER, "owner_principal_name": "emil"}
    answer = {"error_code": 0, "principal_type": USER, "principal_name": "emil", "token_requester_principal_type": USER,
              "token_requester_principal_name": "dora", "issue_timestamp": 1, "expiry_timestamp": 2, "max_timestamp": 2,
              "token_id": "t", "hmac": b"h", "throttle_time": 0}  # fmt: skip
    tokens_seen(cluster, CREATE, {**owner, "renewers": [], "max_lifetime": -1}, answer)


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_of_rights_and_quotas_is_found(
    checker: CheckerFactory, violate: Callable[[WatchedCluster], Any], words: str
) -> None:
    cluster = WatchedCluster(MetadataWatch, checker, shape=SHAPE, theme=THEME)
    try:
        assert_found(cluster.start(), checker, violate, words)
    finally:
        cluster.close()


def test_every_checker_of_rights_and_quotas_can_fail() -> None:
    assert {checker for checker, _, _ in CASES} == {*SECURITY} - {MetadataWatch}


@pytest.fixture
def cluster() -> Iterator[WatchedCluster]:
    found = WatchedCluster(*SECURITY, shape=SHAPE, theme=THEME)
    try:
        yield found.start()
    finally:
        found.close()


def test_the_door_decides_charges_and_mutes_as_a_listener(cluster: WatchedCluster) -> None:
    cluster.create_topic(TOPIC, 2)
    settled(cluster, entry(), QUOTA)
    codes = [error_codes(it, knock(cluster, it)) for it in (produce(), produce("bob-1", Principal(USER, "bob")))]
    assert codes[1] == ["TOPIC_AUTHORIZATION_FAILED"] and codes[0][0] in ("NONE", "NOT_LEADER_OR_FOLLOWER")
    before = knock(cluster, produce(size=5_000))
    assert before.muted_ms > 1_000, "5,000 bytes are beyond eleven seconds of 100"
    after = knock(cluster, replace(produce(), connection="another"))
    assert after.taken_ms - before.taken_ms < 1_000 and after.muted_ms > 0, "the quota is shared, the mute is a connection's own"
    again = cluster.client.call(Endpoint("n4", 9092), DOOR, produce(), 600_000)
    found = cluster.do(again)
    assert found.taken_ms - before.taken_ms >= before.muted_ms
    settled(cluster, entry(2, Permission.DENY, resource_name="oth", pattern_type=PatternType.PREFIXED, principal="User:*"))
    assert error_codes(produce(), knock(cluster, replace(produce(), connection="a third"))) == ["TOPIC_AUTHORIZATION_FAILED"]
    cluster.at_end()


def test_the_rules_are_those_of_the_specification() -> None:
    rules = Rules({"super.users": "User:admin; User:root", "allow.everyone.if.no.acl.found": "true"})

    def allows(
        *entries: r.AccessControlEntryRecord, who: str = "alice", host: str = "h", operation: Operation = Operation.WRITE
    ) -> bool:
        return rules.allows(entries, Principal(USER, who), host, operation, ResourceType.TOPIC, TOPIC)

    deny = entry(2, Permission.DENY, principal="User:*", resource_name="o", pattern_type=PatternType.PREFIXED)
    assert allows() and allows(entry()) and not allows(entry(), deny) and allows(deny, who="root")
    assert not allows(entry(), who="bob"), "an entry about somebody else covers it, too"
    assert not allows(entry(host="x")) and allows(entry(host="::1"), host="0:0::1")
    assert allows(entry(operation=Operation.ALL)) and allows(entry(), operation=Operation.DESCRIBE)
    assert allows(entry(resource_name=CLUSTER_NAME)), "which covers another resource"


def test_the_most_specific_quota_counts() -> None:
    state = MetadataState()
    assert limit_of(state, "alice", "c-0") is None
    for entity, scope in (
        ((("client-id", None),), ("", "c-0")),
        ((("user", None),), ("alice", "")),
        ((("user", "alice"),), ("alice", "")),
        ((("user", "alice"), ("client-id", "c-0")), ("alice", "c-0")),
    ):
        parts = tuple(QuotaEntityPart(type=kind, name=name) for kind, name in entity)
        state = replace(state, quotas={**state.quotas, parts: {"producer_byte_rate": "7"}})
        assert limit_of(state, "alice", "c-0") == Limit(scope, 7.0)
