"""The same questions to Kafka's own classes and to ours, at random: assignors, the steps of a member, rates. No cluster runs."""

from __future__ import annotations

import json
import random
from typing import Any, Final
from uuid import UUID

import pytest

from kraftlite.coordinator.modern.assignors import Subscriber, range_, uniform
from kraftlite.coordinator.modern.member import Member, MemberState, Parts
from kraftlite.coordinator.modern.reconcile import Aim, reconcile
from kraftlite.quotas.rates import QuotaWindows, TokenBucket, WindowedRate
from tests.clients.java.test_metadata_records import run

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("clients")]
CASES: Final = 1_000
Json = dict[str, Any]


def topic(number: int | str) -> UUID:
    return UUID(int=(1 << 64) + int(number))


def parts(found: Json) -> Parts:
    return {topic(number): frozenset(map(int, indexes)) for number, indexes in found.items()}


def plain(found: Parts) -> Json:
    return {str(number.int & 0xFFFF): sorted(indexes) for number, indexes in found.items()}


def drawn_parts(rng: random.Random, sizes: dict[str, int], chance: float) -> Json:
    found = {number: [index for index in range(size) if rng.random() < chance] for number, size in sizes.items()}
    return {number: indexes for number, indexes in found.items() if indexes}


def drawn_group(rng: random.Random) -> Json:
    sizes = {str(number): rng.randint(1, 9) for number in range(1, rng.randint(2, 6))}
    equal, same = rng.random() < 0.5, [number for number in sizes if rng.random() < 0.8] or ["1"]
    members: Json = {}
    for number in range(rng.randint(1, 7)):
        topics = same if equal else [it for it in sizes if rng.random() < 0.5]
        instance = f"i{rng.randrange(100)}-{number}" if rng.random() < 0.3 else None
        members[f"m{number}"] = {"instance": instance, "topics": topics, "previous": {}}
    chance = rng.random()
    for name, size in sizes.items():
        for index in range(size):
            if rng.random() < chance:
                rng.choice(list(members.values()))["previous"].setdefault(name, []).append(index)
    return {"op": "assign", "assignor": rng.choice(["range", "uniform"]), "members": members, "sizes": sizes, "equal": equal}


def assigned(asked: Json) -> Json:
    members = asked["members"]
    order = sorted(members, key=lambda name: (members[name]["instance"] is None, members[name]["instance"] or name))
    subscribers = {
        name: Subscriber(tuple(map(topic, members[name]["topics"])), parts(members[name]["previous"])) for name in order
    }
    assignor = range_ if asked["assignor"] == "range" else uniform
    found = assignor(subscribers, {topic(number): size for number, size in asked["sizes"].items()})
    return {name: plain(of) for name, of in found.items()}


def kept(asked: Json, found: Json) -> int:
    return sum(
        len(set(indexes) & set(found[name].get(number, ())))
        for name, member in asked["members"].items()
        for number, indexes in member["previous"].items()
    )


def test_assignors_give_what_apache_kafkas_give(java: None) -> None:
    """The same ranges; by `uniform` shares of the same sizes, and as much is kept, where all subscribe to the same."""
    rng = random.Random(1)
    asked = [drawn_group(rng) for _ in range(CASES)]
    for question, answer in zip(asked, run("GroupDecisions", map(_line, asked)), strict=True):
        mine = assigned(question)
        theirs = {name: answer.get(name, {}) for name in question["members"]}
        if question["assignor"] == "range":
            assert mine == theirs, question
        elif question["equal"]:
            sizes = [sorted(sum(map(len, of.values())) for of in found.values()) for found in (mine, theirs)]
            assert sizes[0] == sizes[1], question
            assert kept(question, mine) == kept(question, theirs), question


def drawn_member(rng: random.Random) -> Json:
    sizes = {"1": 4, "2": 4, "3": 4}
    places = [(number, index) for number in sizes for index in range(4)]
    rng.shuffle(places)
    state, epoch, own = rng.choice([0, 0, 1, 1, 2]), rng.randint(1, 5), rng.randint(1, 6)
    leaving = rng.randint(1, 4) if state == 1 else 0
    held: dict[str, list[int]] = {}
    for at, (number, index) in enumerate(places):
        if at < own + leaving or rng.random() < 0.3:
            held.setdefault(number, []).append(index)

    def since(some: list[tuple[str, int]]) -> Json:
        found: Json = {}
        for number, index in some:
            found.setdefault(number, {})[str(index)] = rng.randint(0, epoch)
        return found

    says = rng.choice([None, {}, drawn_parts(rng, sizes, 0.3)])
    exist = [number for number in sizes if rng.random() < 0.9]
    return {
        "op": "reconcile", "epoch": epoch, "previous": rng.randint(0, epoch), "state": state, "held": held, "owned": says,
        "assigned": since(places[:own]), "revoking": since(places[own : own + leaving]), "exist": exist,
        "target": drawn_parts(rng, sizes, rng.choice([0, 0.4, 0.8])), "target_epoch": epoch + rng.randint(0, 1),
        "changed": rng.random() < 0.3, "subscribed": [number for number in sizes if rng.random() < 0.8],
    }  # fmt: skip


def stepped(asked: Json) -> Json:
    since: dict[UUID, dict[int, int]] = {}
    for field in ("assigned", "revoking"):
        for number, epochs in asked[field].items():
            since.setdefault(topic(number), {}).update({int(index): epoch for index, epoch in epochs.items()})
    member = Member(
        member_id="m",
        epoch=asked["epoch"],
        previous_epoch=asked["previous"],
        state=MemberState(asked["state"]),
        assigned=parts(asked["assigned"]),
        revoking=parts(asked["revoking"]),
        since=since,
    )
    held = parts(asked["held"])
    aim = Aim(
        epoch=asked["target_epoch"],
        target=parts(asked["target"]),
        is_held=lambda number, index: index in held.get(number, ()),
        subscribed=[topic(number) for number in asked["subscribed"] if number in asked["exist"]],
        subscription_changed=asked["changed"],
        owned=None if asked["owned"] is None else parts(asked["owned"]),
    )
    after = reconcile(member, aim)

    def told(found: Parts) -> Json:
        return {str(it.int & 0xFFFF): {str(index): after.since_of(it, index) for index in found[it]} for it in found}

    return {
        "epoch": after.epoch,
        "previous": after.previous_epoch,
        "state": int(after.state),
        "assigned": told(after.assigned),
        "revoking": told(after.revoking),
    }


def test_a_member_steps_towards_its_target_as_in_apache_kafka(java: None) -> None:
    rng = random.Random(2)
    asked = [drawn_member(rng) for _ in range(CASES)]
    for question, answer in zip(asked, run("GroupDecisions", map(_line, asked)), strict=True):
        assert stepped(question) == answer, question


def drawn_rate(rng: random.Random) -> Json:
    samples, window = rng.choice([2, 3, 11]), rng.choice([100, 1_000])
    whole = samples * window
    pauses = (0, 0, 1, window // 3, window - 1, window, window + 1, 2 * window + 7, whole - 1, whole, whole + window)
    now, steps = 1_000_000, []
    for _ in range(rng.randint(1, 60)):
        now += rng.choice(pauses)
        steps.append([now, None if rng.random() < 0.15 else rng.choice([0, 1, 5, 50, -3])])
    kind = rng.choice(["rate", "simple", "bucket"])
    return {"kind": kind, "samples": samples, "window": window, "quota": rng.choice([10.0, 100.0]), "steps": steps}


def test_rates_and_token_buckets_measure_what_apache_kafkas_measure(java: None) -> None:
    rng = random.Random(3)
    asked = [drawn_rate(rng) for _ in range(CASES)]
    for question, answer in zip(asked, run("RateDecisions", map(_line, asked)), strict=True):
        windows, bound, kind = QuotaWindows(question["samples"], question["window"]), question["quota"], question["kind"]
        rate, bucket = WindowedRate(windows), TokenBucket(windows, bound, question["steps"][0][0])
        for (now, amount), theirs in zip(question["steps"], answer, strict=True):
            if kind == "bucket":
                bucket.take(amount or 0, bound, now)
                assert bucket.tokens == pytest.approx(theirs), question
                continue
            if amount is not None:
                rate.record(amount, now)
            if kind == "simple":
                assert rate.simple_rate(now) == pytest.approx(theirs[0]), question
            else:
                assert rate.measure(now) == (pytest.approx(theirs[0]), theirs[1]), question


def _line(asked: Json) -> str:
    return json.dumps(asked)
