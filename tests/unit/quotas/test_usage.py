"""What clients use of their quotas. QU-01, QU-02, QU-12."""

from __future__ import annotations

from collections.abc import Mapping

from kraftlite.model.messages.security import QuotaEntityPart
from kraftlite.quotas.matching import PRODUCE, REQUEST, QuotaEntity
from kraftlite.quotas.rates import QuotaWindows
from kraftlite.quotas.usage import IDLE_MS, ClientQuotas, Usage

ALICE: QuotaEntity = (QuotaEntityPart(type="user", name="alice"),)
ANY_CLIENT: QuotaEntity = (QuotaEntityPart(type="client-id", name=None),)


class Story:
    def __init__(self) -> None:
        self.told: list[str] = []

    def throttling_began(self, usage: Usage, rate: float) -> None:
        self.told.append(f"began {usage.scope}")

    def throttling_ended(self, usage: Usage) -> None:
        self.told.append(f"ended {usage.scope}")


def quotas(entities: Mapping[QuotaEntity, Mapping[str, str]], story: Story | None = None) -> ClientQuotas:
    found = ClientQuotas(QuotaWindows(), story or Story())
    found.set_quotas(entities, measures_time=False)
    return found


def spend(found: ClientQuotas, client: str, amount: float, now_ms: int, *, user: str = "alice", key: str = PRODUCE) -> int:
    usage = found.of(key, user, client, now_ms)
    assert usage is not None
    return usage.record(amount, now_ms)


def test_qu_01_all_clients_of_a_user_share_its_quota() -> None:
    found = quotas({ALICE: {PRODUCE: "100"}})
    assert spend(found, "one", 1_000, 0) == 0
    assert spend(found, "two", 1_000, 0) == 10_000
    assert found.of(PRODUCE, "bob", "one", 0) is None


def test_qu_01_a_default_counts_each_client_by_itself() -> None:
    found = quotas({ANY_CLIENT: {PRODUCE: "100"}})
    assert spend(found, "one", 1_000, 0) == 0
    assert spend(found, "two", 1_000, 0) == 0
    assert spend(found, "one", 1, 0) == 10


def test_qu_02_a_changed_limit_keeps_what_was_used_and_a_removed_one_bounds_nobody() -> None:
    found = quotas({ALICE: {PRODUCE: "100"}})
    spend(found, "one", 2_000, 0)
    found.set_quotas({ALICE: {PRODUCE: "200"}}, measures_time=False)
    assert spend(found, "one", 10, 0) == 50
    known = next(found.usages())
    found.set_quotas({}, measures_time=False)
    assert found.of(PRODUCE, "alice", "one", 0) is None
    assert known.record(1e12, 0) == 0


def test_request_time_throttles_for_one_window_at_most() -> None:
    found = quotas({ALICE: {REQUEST: "1", PRODUCE: "1"}})
    assert spend(found, "one", 1e6, 0, key=REQUEST) == 1_000
    assert spend(found, "one", 1e6, 0) > 1_000


def test_qu_12_usage_is_forgotten_after_an_hour() -> None:
    found = quotas({ANY_CLIENT: {PRODUCE: "100"}})
    spend(found, "one", 1, 0)
    spend(found, "two", 1, 1_000)
    found.sweep(IDLE_MS)
    assert [usage.scope.client_id for usage in found.usages()] == ["two"]
    assert spend(found, "one", 1, IDLE_MS) == 0


def test_the_usage_of_many_names_is_bounded() -> None:
    story = Story()
    found = ClientQuotas(QuotaWindows(), story, most_scopes=10, most_clients=15)
    found.set_quotas({ANY_CLIENT: {PRODUCE: "1"}}, measures_time=False)
    for number in range(100):
        usage = found.of(PRODUCE, "alice", f"c{number}", number)
        assert usage is not None
        found.throttle(usage, 5, number)
        found.of(PRODUCE, "alice", "steady", number)
    names = [usage.scope.client_id for usage in found.usages()]
    assert len(names) == 10
    assert "steady" in names
    assert story.told.count("ended client-id c0") == 1


def test_long_names_are_told_apart_and_not_kept_whole() -> None:
    """A client may call itself by 32 KiB, and each time otherwise."""
    named: QuotaEntity = (QuotaEntityPart(type="client-id", name="n" * 1_000),)
    found = quotas({ANY_CLIENT: {PRODUCE: "100"}, named: {PRODUCE: "200"}})
    for number in range(50):
        assert spend(found, "x" * 32_000 + str(number), 1_000, 0) == 0
    assert spend(found, "x" * 32_000 + "7", 1, 0) == 10, "what it has used is known"
    usage = found.of(PRODUCE, "alice", "n" * 1_000, 0)
    assert usage is not None and usage.bound == 200
    kept = [name for usage in found.usages() for name in usage.scope] + [name for it in found._clients for name in it]
    assert max(map(len, kept)) < 400


def test_qu_12_a_client_is_told_of_once_while_it_is_throttled() -> None:
    story = Story()
    found = quotas({ANY_CLIENT: {PRODUCE: "1"}}, story)
    usage = found.of(PRODUCE, "alice", "app", 0)
    assert usage is not None
    for now in range(0, 20_000, 500):
        found.throttle(usage, 1_000, now)
        found.sweep(now)
    assert story.told == ["began client-id app"]
    found.sweep(20_500 + 11_000)
    assert story.told == ["began client-id app", "ended client-id app"]
    assert (usage.throttled_times, usage.throttled_ms) == (40, 40_000)
