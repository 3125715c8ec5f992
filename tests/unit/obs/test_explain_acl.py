"""`explain acl`: who was refused what, by which rule. Source: SE-38."""

from __future__ import annotations

import pytest

from kraftlite.obs.explain import History, Subject, UnknownSubject, explain, from_trace
from kraftlite.runtime.trace.security import AccessDenied
from kraftlite.runtime.trace.wire import ListenerStarted


def denied(ms: int, principal: str, resource: str, rule: str = "DefaultDeny", left_out: int | None = None) -> object:
    event = AccessDenied(
        principal=principal,
        host="10.0.0.7",
        client_id="app",
        api="Produce",
        operation="WRITE",
        resource=resource,
        rule=rule,
        left_out=left_out,
    )
    return from_trace(ms, 2, event)


def test_refusals_of_one_kind_are_one_story_with_their_rule() -> None:
    history = History(
        [
            denied(1_000, "User:alice", "Topic:LITERAL:orders"),
            denied(2_000, "User:alice", "Topic:LITERAL:orders", left_out=7),
            denied(3_000, "User:bob", "Topic:LITERAL:orders", "MatchingAcl(acl=StandardAcl(x))"),
        ]
    )
    found = explain(history, Subject.parse("acl", "User:alice"))
    (story,) = found.stories
    assert story.title == "User:alice was refused WRITE on Topic:LITERAL:orders, 2 times"
    assert story.facts["count"] == 2 and "no access control entry allows it" in story.steps[0].what
    assert "10.0.0.7, client id app" in story.steps[0].what
    assert found.standing == "2 refusals are recorded, and 7 more that were not told one by one"
    everybody = explain(history, Subject.parse("acl"))
    assert [one.facts["principal"] for one in everybody.stories] == ["User:alice", "User:bob"]
    assert "denied by MatchingAcl(acl=StandardAcl(x))" in everybody.stories[1].steps[0].what
    assert Subject.parse("acl", "alice") == Subject.parse("acl", "User:alice"), "a user's name is enough"
    with pytest.raises(UnknownSubject, match="of a refusal of User:nobody; something was refused to User:alice, User:bob"):
        explain(history, Subject.parse("acl", "nobody"))
    with pytest.raises(UnknownSubject, match="nobody was refused anything"):
        explain(History([from_trace(1, 2, ListenerStarted(listener="A", host="h", port=1))]), Subject.parse("acl", "alice"))
