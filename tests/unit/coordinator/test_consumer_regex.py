"""Subscriptions by regular expression: RE2's language, and groups that follow the topics that match."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlite.coordinator.modern.regex import check, matching
from kraftlite.model.errors import ApiError, ErrorCode
from tests.harness.consumer_world import ConsumerWorld, topic_id

# --- the language --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "matched", "not_matched"),
    [
        ("orders", ["orders"], ["orders2", "an-orders", ""]),
        ("orders.*", ["orders", "orders.eu"], ["an-orders"]),
        (r"orders\..+", ["orders.eu"], ["orders", "orders-eu", "orders."]),
        ("^a|b$", ["a", "b"], ["ab", "c"]),
        ("(eu|us)-[0-9]{2,3}", ["eu-10", "us-123"], ["eu-1", "uk-10", "eu-1234"]),
        ("[^a-c_]+", ["xyz", "X-9"], ["abc", "x_y", ""]),
        (r"\w+\d", ["topic1", "_9"], ["topic", "a-1"]),
        (r"[[:upper:]][[:^digit:]]*", ["Abc", "X"], ["abc", "A1"]),
        ("(?i)orders", ["ORDERS", "oRders"], ["order"]),
        ("(?i:or)ders", ["ORders"], ["ORDERS"]),
        ("(?:a|b)(?P<rest>c*)", ["a", "bccc"], ["ab"]),
        (r"\Qa.b\E.", ["a.bc"], ["axbc", "a.b"]),
        ("a{2}", ["aa"], ["a", "aaa"]),
        ("a{,2}", [], ["a", "aa"]),
        ("a??b*?", ["", "a", "ab", "bb"], ["ba"]),
        (r"\bab\b-\bcd\z", ["ab-cd"], ["abcd"]),
        (r"\x61\x{62}\.", ["ab."], ["ab"]),
        (r"\pL\PN\p{Lu}", ["aaZ"], ["1aZ", "a1Z"]),
        ("", [""], ["a"]),
        ("()*", [""], ["a"]),
        ("(a*)*", ["", "aaa"], ["b"]),
        ("ü", [], ["u"]),
        ("[-a]", ["-", "a"], ["b"]),
        ("[]a]", ["a"], ["b"]),
    ],
)
def test_what_matches(pattern: str, matched: list[str], not_matched: list[str]) -> None:
    check(pattern)
    assert list(matching(pattern, [*matched, *not_matched])) == matched


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "a)", "(a", "[", "[a", "[b-a]", "*", "a**", "a*+", "+a", "a{1001}", "a{3,2}", "(?=a)", "(?!a)", "(?<=a)",
        "(?<!a)", "(a)\\1", "(?P=x)", "(?P<>a)", "(?x)", "\\", "\\y", "\\p{Klingon}", "[[:foo:]]",
        "\\xg", "a{900}{900}", "((a{900}){900}",
        "(a{1000}){1000}", "a" * 1001,
    ],
)  # fmt: skip
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(ApiError) as caught:
        check(pattern)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(("pattern", "reason"), [
    ("[", "missing closing ]"), ("(", "missing closing )"), (")", "missing closing )"),
    ("\\", "trailing backslash at end of expression"), ("*", "missing argument to repetition operator"),
    ("a**", "invalid nested repetition operator"), ("a{1001}", "invalid repeat count"), ("\\8", "invalid escape sequence"),
    ("(?z)", "invalid or unsupported Perl syntax"), ("(?P<n", "invalid named capture"),
    ("[b-a]", "invalid character class range"),
])  # fmt: skip
def test_the_reason_is_told_in_kafkas_words(pattern: str, reason: str) -> None:
    with pytest.raises(ApiError) as caught:
        check(pattern)
    assert caught.value.message == f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}."


def test_no_expression_takes_exponential_time() -> None:
    pattern = "(a+)+(a|a)*(a?){60}a{60}"
    assert matching(pattern, ["a" * 120 + "b", "a" * 120]) == ("a" * 120,)


@given(st.text("()[]{}|*+?\\.^$ab12,-:PQEpx<=!i", max_size=12))
def test_anything_is_an_expression_or_is_refused(pattern: str) -> None:
    try:
        check(pattern)
    except ApiError as error:
        assert error.code is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert matching(pattern, ["ab-12"]) == ()


# --- groups --------------------------------------------------------------------------------------------------------------


def test_a_member_reads_the_topics_that_match_and_those_that_come() -> None:
    """CG-06."""
    w = ConsumerWorld({"a.1": 1, "a.2": 2, "b.1": 1})
    m = w.enter("m", regex=r"a\..*")
    assert m.names == ["a.10", "a.20", "a.21"]
    assert (m.epoch, w.kinds().count(16)) == (2, 1)
    w.change_topics(**{"a.3": 1})
    assert w.beat(m).member_epoch == 2, "topics are matched every ten seconds at most"
    w.advance(10_001)
    w.beat(m)
    assert m.names == ["a.10", "a.20", "a.21", "a.30"]
    assert m.epoch == 3
    w.change_topics(**{"b.2": 1})
    w.advance(10_001)
    assert w.beat(m).member_epoch == 3, "it does not match"
    w.change_topics(**{"a.1": 0})
    w.settle()
    assert m.names == ["a.20", "a.21", "a.30"]


def test_names_and_expressions_add_up() -> None:
    w = ConsumerWorld({"a": 1, "b": 1, "c": 1})
    m = w.enter("m", topics=("c",), regex="a|b")
    assert m.names == ["a0", "b0", "c0"]
    w.beat(m, regex="b")
    w.settle()
    assert m.names == ["b0", "c0"]
    assert list(w.consumers().regexes) == ["b"]
    w.beat(m, regex="")
    w.settle()
    assert m.names == ["c0"]
    assert not w.consumers().regexes
    assert w.log[-1][1] is not None
    w.check()


def test_an_expression_goes_with_the_last_who_used_it() -> None:
    w = ConsumerWorld({"a": 2})
    m, n = w.enter("m", regex="a"), w.enter("n", regex="a")
    w.settle()
    assert len(m.names) == len(n.names) == 1
    w.quit(m)
    assert list(w.consumers().regexes) == ["a"]
    w.quit(n)
    assert not w.consumers().regexes
    w.fail_over()
    assert not w.consumers().regexes


def test_an_expression_that_is_none_is_refused_and_changes_nothing() -> None:
    w = ConsumerWorld({"a": 1})
    said = {"rebalance_ms": 1_000, "owned": {}}
    assert w.refused("m", 0, regex="(a", **said) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert w.shard.group_count == 0
    m = w.enter("m", regex="a")
    assert w.refused("m", m.epoch, regex="[", owned=m.owned) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert w.member("m").regex == "a"


def test_matches_survive_the_coordinator_and_are_looked_up_by_the_next() -> None:
    w = ConsumerWorld({"a": 1})
    m = w.enter("m", regex="a.*")
    w.topics["ab"] = 1
    w.metadata_offset += 1
    w.fail_over()
    assert w.consumers().regexes["a.*"].topics == ("a",)
    w.advance(10_001)
    w.beat(m)
    assert m.names == ["a0", "ab0"]


def test_every_topic_is_looked_at_again_after_a_while() -> None:
    w = ConsumerWorld({"a": 1}, consumer_regex_refresh_ms=40_000)
    m = w.enter("m", regex="a")
    first = w.consumers().regexes["a"].timestamp_ms
    for _ in range(3):
        w.advance(20_000)
        w.beat(m)
    assert w.consumers().regexes["a"].timestamp_ms > first
    assert m.epoch == 2
    assert w.member("m").assigned == {topic_id("a"): frozenset({0})}


def test_a_heartbeat_looks_up_a_few_of_many_expressions_and_the_next_ones_the_others() -> None:
    """One that is new is no reason to look up the others; and after new topics each heartbeat does a part."""
    w = ConsumerWorld({f"t{index}": 1 for index in range(7_000)})
    members = [w.enter(f"m{index}", regex=f"t{index}") for index in range(5)]
    looked_up = {regex: found.version for regex, found in w.consumers().regexes.items()}
    assert len(looked_up) == 5
    w.change_topics(t0x=1)
    w.advance(10_001)
    done = []
    for member in (members[0], members[1], members[2]):
        w.beat(member)
        done.append(sum(found.version > looked_up[regex] for regex, found in w.consumers().regexes.items()))
    assert done == [2, 4, 5]


def test_an_expression_finds_what_the_client_may_describe() -> None:
    """SE-36: the rights of the member that gives the reason to look decide, as in Kafka."""
    w = ConsumerWorld({"a.1": 1, "a.2": 1})
    m = w.enter("m", regex=r"a\..*", sees=lambda name: name != "a.2")
    assert m.names == ["a.10"]
    w.change_topics(**{"a.3": 1})
    w.advance(10_001)
    w.beat(m, sees=lambda name: name == "a.3")
    w.settle()
    assert m.names == ["a.30"]
    w.change_topics(**{"a.4": 1})
    w.advance(10_001)
    w.beat(m)
    w.settle()
    assert m.names == ["a.10", "a.20", "a.30", "a.40"], "who has no authorizer sees all"
