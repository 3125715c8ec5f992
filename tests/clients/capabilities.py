"""What every client is put through: subclass `Capabilities` in the client's folder and say which client it is.

Each test is of one capability, by which docs/CLIENTS.md counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from tests.clients.clusters import Start
from tests.clients.programs import CODECS, Client, Event, Missing, Ready, Refused, Run
from tests.clients.transactions import Transactions, capability, keyed
from tests.harness.local import Cluster, wait_for

PARTITIONS = 4
SESSION_MS = 30_000
"""Nobody dies here: members leave, and a static one is back before its session ends, however busy the machine is."""
FOR_EVER = {"retention.ms": "-1"}
"""For records of 1970, which are too old for any other retention."""


def numbered(n: int, partition: int | None = 0) -> list[dict[str, Any]]:
    where = {} if partition is None else {"partition": partition}
    return [{**where, "key": f"k{i}", "value": f"v{i}"} for i in range(n)]


def split(*members: Run) -> bool:
    """Everybody owns something, and every partition is owned once."""
    owned = [member.assigned() for member in members]
    return all(owned) and sorted(p for one in owned for p in one) == list(range(PARTITIONS))


class Capabilities(Transactions):
    client: ClassVar[Client]

    @pytest.fixture(scope="class")
    @classmethod
    def command(cls) -> list[str]:
        try:
            return list(cls.client.prepare())
        except Missing as missing:
            pytest.skip(str(missing))

    @pytest.fixture
    def ready(self, request: pytest.FixtureRequest, cluster: Cluster, command: list[str]) -> Ready:
        self.check(request)
        return Ready(self.client, command, cluster.bootstrap)

    def check(self, request: pytest.FixtureRequest) -> None:
        for mark in request.node.iter_markers("capability"):
            if mark.args[0] in self.client.lacks:
                pytest.skip(self.client.lacks[mark.args[0]])

    # --- records

    @pytest.mark.parametrize(
        "acks", [pytest.param(it, marks=capability(f"produce, acks={it}"), id=f"acks={it}") for it in ("0", "1", "all")]
    )
    def test_produce(self, ready: Ready, cluster: Cluster, topic: str, acks: str) -> None:
        cluster.create_topic(topic)
        events = ready.produce(topic, numbered(200), acks=acks)
        told = [it["offset"] for it in events if it["event"] == "ack" and it.get("offset") is not None]
        if acks != "0" and told:
            assert told == list(range(200))
        assert [(it["offset"], it["key"], it["value"]) for it in ready.read(topic, 200)] == [
            (n, f"k{n}", f"v{n}") for n in range(200)
        ]

    @capability("produce, idempotent")
    def test_idempotent(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        cluster.create_topic(topic)
        ready.produce(topic, numbered(300), idempotent=True)
        assert cluster.consume(topic, at_least=300) == [f"v{n}" for n in range(300)]
        assert producers(cluster, topic) == 1

    @pytest.mark.parametrize("codec", [pytest.param(it, marks=capability(f"codec {it}")) for it in CODECS])
    def test_codec(self, ready: Ready, cluster: Cluster, topic: str, codec: str) -> None:
        cluster.create_topic(topic)
        records = [{"partition": 0, "value": f"{n}-" + "y" * 200} for n in range(300)]
        ready.produce(topic, records, codec=codec)
        assert [it["value"] for it in ready.read(topic, 300)] == [it["value"] for it in records]
        assert codecs_of(cluster, topic) == {codec}, "the client did not compress"

    @capability("headers, nulls, timestamps")
    def test_records(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        cluster.create_topic(topic, config=FOR_EVER)
        records = [
            {"partition": 0, "key": "k", "value": None, "headers": [["a", "1"], ["a", "2"]], "timestamp": 1_000_000},
            {"partition": 0, "key": None, "value": "", "timestamp": 2_000_000},
            {"partition": 0, "key": "", "value": "ü", "headers": [["empty", ""]], "timestamp": 3_000_000},
        ]
        ready.produce(topic, records)
        found = ready.read(topic, 3)
        assert [(it["key"], it["value"], it["timestamp"]) for it in found] == [
            ("k", None, 1_000_000),
            (None, "", 2_000_000),
            ("", "ü", 3_000_000),
        ]
        assert [it["headers"] for it in found] == [[["a", "1"], ["a", "2"]], [], [["empty", ""]]]

    @capability("seek by time")
    def test_seek_by_time(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        stamped(cluster, topic, 20)
        assert [it["value"] for it in ready.read(topic, 10, time_ms=1_009_500)] == [f"v{n}" for n in range(10, 20)]

    # --- groups

    def member(self, ready: Ready, topic: str, **job: Any) -> Any:
        return ready.start(
            op="group", **{"topic": topic, "group": f"g-{topic}", "protocol": "range", "session_ms": SESSION_MS, **job}
        )

    def filled(self, cluster: Cluster, topic: str) -> set[str]:
        cluster.create_topic(topic, partitions=PARTITIONS)
        values = [[f"{p}:{n}" for n in range(25)] for p in range(PARTITIONS)]
        for partition, some in enumerate(values):
            assert cluster.produce(topic, some, partition=partition) == []
        return {value for some in values for value in some}

    @capability("group: consume, commit, resume")
    def test_group(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        self.resumes(ready, cluster, topic)

    def resumes(self, ready: Ready, cluster: Cluster, topic: str, **job: Any) -> None:
        """A member reads all and commits; its successor reads only what came after that."""
        first = self.filled(cluster, topic)
        with self.member(ready, topic, **job) as member:
            member.until("all is read", lambda: len(member.values()) >= len(first))
            member.stop()
            assert sorted(member.values()) == sorted(first)
        assert cluster.produce(topic, ["new"], partition=2) == []
        with self.member(ready, topic, **job) as member:
            member.until("the new record", lambda: "new" in member.values())
            member.stop()
            assert member.values() == ["new"]

    @capability("group: rebalance")
    def test_rebalance(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        self.rebalances(ready, cluster, topic, protocol="range")

    @capability("group: cooperative")
    def test_cooperative(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        self.rebalances(ready, cluster, topic, protocol="cooperative")

    def rebalances(self, ready: Ready, cluster: Cluster, topic: str, **job: Any) -> None:
        """Two share the partitions; when one leaves, the other has all of them and reads on."""
        self.filled(cluster, topic)
        everything = list(range(PARTITIONS))
        with self.member(ready, topic, **job) as first:
            first.until("the first owns all", lambda: first.assigned() == everything)
            before = len(first.events)
            with self.member(ready, topic, **job) as second:
                first.until("both share", lambda: second.pump() and split(first, second))
                if job["protocol"] != "range":
                    kept = first.assigned()
                    taken = [p for it in first.events[before:] if it["event"] == "revoked" for p in it["partitions"]]
                    assert not set(kept) & set(taken), "what it keeps is not taken from it meanwhile"
                second.stop()
            first.until("the first owns all again", lambda: first.assigned() == everything)
            for partition in everything:
                assert cluster.produce(topic, [f"{partition}:last"], partition=partition) == []
            first.until("it reads on", lambda: {f"{p}:last" for p in everything} <= set(first.values()))
            first.stop()

    @capability("group: static members")
    def test_cp_34_static_members(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        self.filled(cluster, topic)
        with self.member(ready, topic, instance="one") as first:
            first.until("the first owns all", lambda: len(first.assigned()) == PARTITIONS)
            with self.member(ready, topic, instance="two") as second:
                first.until("both share", lambda: second.pump() and split(first, second))
                mine = second.assigned()
                second.kill()  # no word to the coordinator: static members do not leave
            before = len(first.events)
            with self.member(ready, topic, instance="two") as second:
                second.until("it has its partitions back", lambda: second.assigned() == mine)
                first.pump()
                assert [it for it in first.events[before:] if it["event"] in ("assigned", "revoked", "lost")] == []
                second.stop()
            first.stop()

    @capability("group: KIP-848")
    def test_kip_848(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        needs_api(cluster, 68, "ConsumerGroupHeartbeat")
        self.rebalances(ready, cluster, topic, protocol="consumer")

    @capability("group: KIP-848")
    def test_kip_848_resumes(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        needs_api(cluster, 68, "ConsumerGroupHeartbeat")
        self.resumes(ready, cluster, topic, protocol="consumer")

    # --- administration

    @capability("admin: topics")
    def test_topics(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        create = {"do": "create_topic", "topic": topic, "partitions": 3, "replication_factor": 2}
        assert ready.admin(create) == [None]
        cluster.wait_topic(topic)
        names, described, again = ready.admin({"do": "list_topics"}, {"do": "describe_topic", "topic": topic}, create)
        assert topic in names
        assert described == {"partitions": 3, "replicas": 2}
        assert refused(again, "TOPIC_ALREADY_EXISTS")
        assert ready.admin({"do": "delete_topic", "topic": topic}) == [None]
        cluster.wait_gone(topic)
        (gone,) = ready.admin({"do": "delete_topic", "topic": topic})
        assert refused(gone, "UNKNOWN_TOPIC_OR_PARTITION")

    @capability("admin: describe cluster")
    def test_cluster(self, ready: Ready, cluster: Cluster) -> None:
        (found,) = ready.admin({"do": "describe_cluster"})
        assert sorted(found["brokers"]) == cluster.brokers
        assert found["cluster_id"] == cluster.state.cluster_id

    @capability("admin: partitions")
    def test_partitions(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        cluster.create_topic(topic)
        more = {"do": "create_partitions", "topic": topic, "partitions": 4}
        assert ready.admin(more) == [None]
        wait_for("every broker knows four partitions", lambda: all(v and len(v.topics[topic]) == 4 for v in seen(cluster, topic)))
        (again,) = ready.admin({**more, "partitions": 2})
        assert refused(again, "INVALID_PARTITIONS")

    @capability("admin: configs")
    def test_configs(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        cluster.create_topic(topic, config={"retention.ms": "1000000"})
        describe = {"do": "describe_configs", "topic": topic}
        (found,) = ready.admin(describe)
        assert found["retention.ms"] == {"value": "1000000", "default": False}
        assert found["cleanup.policy"] == {"value": "delete", "default": True}
        assert ready.admin({"do": "alter_configs", "topic": topic, "config": {"max.message.bytes": "2000"}}) == [None]

        def told() -> bool:
            return bool(ready.admin(describe)[0]["max.message.bytes"] == {"value": "2000", "default": False})

        wait_for("the broker that is asked has heard of it", told)
        (bad,) = ready.admin({"do": "alter_configs", "topic": topic, "config": {"max.message.bytes": "many"}})
        assert refused(bad, "INVALID_CONFIG")

    @capability("admin: delete records")
    def test_delete_records(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        cluster.create_topic(topic)
        assert cluster.produce(topic, [f"v{n}" for n in range(10)]) == []
        where = {"topic": topic, "partition": 0}
        (deleted,) = ready.admin({"do": "delete_records", **where, "offset": 4})
        assert not isinstance(deleted, Refused), deleted
        found = ready.admin({"do": "list_offset", **where, "at": "earliest"}, {"do": "list_offset", **where, "at": "latest"})
        assert found == [4, 10]
        (beyond,) = ready.admin({"do": "delete_records", **where, "offset": 99})
        assert refused(beyond, "OFFSET_OUT_OF_RANGE")

    @capability("admin: list offsets")
    def test_list_offsets(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        stamped(cluster, topic, 10)
        found = ready.admin(
            *({"do": "list_offset", "topic": topic, "partition": 0, "at": at} for at in ("earliest", "latest", "1004500"))
        )
        assert found == [0, 10, 5]

    @capability("admin: groups")
    def test_groups(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        self.filled(cluster, topic)
        group = f"g-{topic}"
        with self.member(ready, topic) as member:
            member.until("all is read", lambda: len(member.values()) >= 25 * PARTITIONS)
            names, found = ready.admin({"do": "list_groups"}, {"do": "describe_group", "group": group})
            assert group in names
            assert found == {"state": "Stable", "members": 1, "type": "consumer"}
            member.stop()
        committed, found = ready.admin(
            {"do": "committed", "group": group, "topic": topic}, {"do": "describe_group", "group": group}
        )
        assert committed == {str(p): 25 for p in range(PARTITIONS)}
        assert found == {"state": "Empty", "members": 0, "type": "consumer"}

    @capability("admin: delete groups")
    def test_delete_groups(self, ready: Ready, cluster: Cluster, topic: str) -> None:
        self.filled(cluster, topic)
        group = f"g-{topic}"
        delete = {"do": "delete_group", "group": group}
        with self.member(ready, topic) as member:
            member.until("some is read", lambda: member.values())
            (busy,) = ready.admin(delete)
            assert refused(busy, "NON_EMPTY_GROUP")
            member.stop()
        assert ready.admin(delete) == [None]
        (names,) = ready.admin({"do": "list_groups"})
        assert group not in names

    # --- failure

    @pytest.fixture
    def breakable(self, start: Start) -> Iterator[Cluster]:
        with start({"min.insync.replicas": "2"}) as cluster:
            yield cluster

    @capability("a broker is down: overview")
    def test_overview(self, request: pytest.FixtureRequest, breakable: Cluster, command: list[str], topic: str) -> None:
        """What a web UI asks: who is there, all topics, all groups with their offsets, the records."""
        self.check(request)
        cluster = breakable
        everything = self.filled(cluster, topic)
        group = f"g-{topic}"
        ready = Ready(self.client, command, cluster.bootstrap)
        with self.member(ready, topic) as member:
            member.until("all is read", lambda: len(member.values()) >= len(everything))
            member.stop()
        dead = cluster.leader(topic)
        cluster.kill(dead)
        for partition in range(PARTITIONS):
            cluster.wait_leader(topic, partition, not_in=(dead,))
        where = [{"topic": topic, "partition": partition} for partition in range(PARTITIONS)]
        found, topics, described, groups, told, committed, *latest = ready.admin(
            {"do": "describe_cluster"},
            {"do": "list_topics"},
            {"do": "describe_topic", "topic": topic},
            {"do": "list_groups"},
            {"do": "describe_group", "group": group},
            {"do": "committed", "group": group, "topic": topic},
            *({"do": "list_offset", **it, "at": "latest"} for it in where),
        )
        assert sorted(found["brokers"]) == [it for it in cluster.brokers if it != dead]
        assert topic in topics
        assert described == {"partitions": PARTITIONS, "replicas": 3}
        assert group in groups
        assert told == {"state": "Empty", "members": 0, "type": "consumer"}
        assert committed == {str(p): 25 for p in range(PARTITIONS)}
        assert latest == [25] * PARTITIONS
        read = [it["value"] for p in range(PARTITIONS) for it in ready.read(topic, 25, partition=p)]
        assert set(read) == everything

    @pytest.mark.parametrize(
        "idempotent",
        [
            pytest.param(False, marks=capability("a broker is killed")),
            pytest.param(True, marks=capability("a broker is killed, idempotent")),
        ],
    )
    def test_a_broker_is_killed(
        self, request: pytest.FixtureRequest, breakable: Cluster, command: list[str], topic: str, idempotent: bool
    ) -> None:
        """No acknowledged record is lost, keys keep their order, a consumer reads on; and nothing twice if idempotent."""
        self.check(request)
        cluster = breakable
        ready = Ready(self.client, command, cluster.bootstrap)
        cluster.create_topic(topic, partitions=PARTITIONS)
        total, keys = 1500, 10
        records = [{"key": f"k{n % keys}", "value": f"{n}"} for n in range(total)]
        job = {"op": "produce", "topic": topic, "acks": "all", "idempotent": idempotent, "records": records, "pause_ms": 2}
        with self.member(ready, topic, group="readers") as reader, ready.start(**job) as writer:
            reader.until("some are read", lambda: len(reader.values()) >= 200)
            dead = cluster.leader(topic)
            cluster.kill(dead)
            reader.until("others took over", lambda: len(reader.values()) >= 900)
            cluster.restart(dead)
            events = writer.done()
            assert [it for it in events if it["event"] == "fail"] == []
            acknowledged = {records[it["i"]]["value"] for it in events if it["event"] == "ack"}
            assert len(acknowledged) == total
            reader.until("everything acknowledged is read", lambda: acknowledged <= set(reader.values()))
            reader.stop()
        check_log(cluster, topic, acknowledged, exactly_once=idempotent)


def stamped(cluster: Cluster, topic: str, total: int) -> None:
    """A topic of records that are a second apart."""
    cluster.create_topic(topic, config=FOR_EVER)
    producer = cluster.producer()
    for n in range(total):
        producer.produce(topic, f"v{n}".encode(), partition=0, timestamp=1_000_000 + 1000 * n)
    assert producer.flush(60) == 0


def check_log(cluster: Cluster, topic: str, acknowledged: set[str], *, exactly_once: bool) -> None:
    """What is in the log, read by another client: all that was acknowledged, in order by key."""
    cluster.wait_topic(topic)
    found: list[tuple[int, int, str, str]] = []
    for partition in range(PARTITIONS):
        found += [(partition, offset, key, value) for offset, (key, value) in enumerate(keyed(cluster, topic, partition))]
    values = [value for *_, value in found]
    assert acknowledged <= set(values), "an acknowledged record is lost"
    first: dict[str, list[int]] = {}
    homes: dict[str, set[int]] = {}
    seen_values: dict[str, None] = {}
    for partition, _offset, key, value in found:
        homes.setdefault(key, set()).add(partition)
        if value not in seen_values:
            seen_values[value] = None
            first.setdefault(key, []).append(int(value))
    assert all(len(it) == 1 for it in homes.values()), "a key moved to another partition"
    assert all(it == sorted(it) for it in first.values()), "a key's order is lost"
    if exactly_once:
        assert len(values) == len(set(values)), "a record is there twice"


def seen(cluster: Cluster, topic: str) -> list[Any]:
    return list(cluster.views(topic).values())


def refused(answer: Any, error: str) -> bool:
    """The name of the error, in whatever words the client puts it."""
    plain = "".join(it for it in str(answer).lower() if it.isalnum())
    return isinstance(answer, Refused) and error.replace("_", "").lower() in plain


def offered(cluster: Cluster) -> dict[int, tuple[int, int]]:
    """The versions of every API that the first broker advertises."""
    from tests.clients.raw import Connection

    with Connection.to(cluster) as connection:
        return connection.offered()


def needs_api(cluster: Cluster, key: int, name: str) -> None:
    if key not in offered(cluster):
        pytest.skip(f"kraftlite does not offer {name} (API {key})")


def codecs_of(cluster: Cluster, topic: str) -> set[str]:
    """The codecs of the batches in a topic's first partition, as a fetch returns them."""
    from tests.clients.raw import Connection

    with Connection.to(cluster, cluster.leader(topic)) as connection:
        return {CODECS[batch.attributes & 7] for batch in connection.batches(topic)}


def producers(cluster: Cluster, topic: str) -> int:
    """How many idempotent producers have written to a topic's first partition."""
    from tests.clients.raw import Connection

    with Connection.to(cluster, cluster.leader(topic)) as connection:
        return len({batch.producer_id for batch in connection.batches(topic) if batch.producer_id >= 0})


__all__ = ["Capabilities", "Event", "capability", "needs_api", "offered"]
