"""What a sink's task writes, from Arrow rows to an embedded cluster, without Spark.

Source: Spark's KafkaWriter and KafkaRowWriter; KIP-98.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from kraftlite.client.errors import UnknownTopic  # noqa: E402
from kraftlite.client.kafka_client import KafkaClient, client_for  # noqa: E402
from kraftlite.client.settings import ClientSettings  # noqa: E402
from kraftlite.exactly_once.driver import KafkaCluster  # noqa: E402
from kraftlite.exactly_once.protocol_core import Staging, commit  # noqa: E402
from kraftlite.exactly_once.records import STATE_TOPIC  # noqa: E402
from kraftlite.log.batch import iter_records  # noqa: E402
from kraftlite.model.topic_partition import TopicPartition  # noqa: E402
from kraftlite.spark.sink import producing  # noqa: E402
from kraftlite.spark.sink.producing import (  # noqa: E402
    BATCH_HEADER,
    ExactlyOnce,
    KraftliteWriter,
    SinkError,
    SinkSettings,
    Written,
)
from kraftlite.testing import SyncCluster, other_than  # noqa: E402
from tests.embedded.test_raw_client import batches_of  # noqa: E402
from tests.harness import embedded  # noqa: E402
from tests.harness.exactly_once import committed  # noqa: E402
from tests.harness.spark_runs import run_all_again  # noqa: E402

pytestmark = [pytest.mark.clients]

_NUMBERS = count(1)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Row = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[SyncCluster]:
    with SyncCluster(controllers=1, brokers=3) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: SyncCluster) -> Iterator[SyncCluster]:
    yield shared_cluster
    run_all_again(shared_cluster)


@pytest.fixture
def topic() -> str:
    return f"sink-{next(_NUMBERS)}"


def settings_of(cluster: SyncCluster, topic: str | None = None, **changes: Any) -> SinkSettings:
    bootstrap = tuple(cluster.bootstrap_servers.split(","))
    return SinkSettings(client=ClientSettings(bootstrap=bootstrap, retry_backoff_ms=20, **changes), topic=topic)


def rows_of(**columns: Any) -> Any:
    """Python values, or a tuple of these and their Arrow type."""
    arrays = {name: pa.array(*it) if isinstance(it, tuple) else pa.array(it) for name, it in columns.items()}
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def write(settings: SinkSettings, *batches: Any, turn: int = 0, stamp: str | None = None) -> Written:
    with KraftliteWriter(client_for(settings.client), settings, turn=turn, stamp=stamp) as writer:
        for batch in batches:
            writer.add(batch)
        return writer.finish()


def read(client: KafkaClient, tp: TopicPartition) -> list[Row]:
    end = client.list_offsets({tp: -1})[tp].offset
    found: list[Row] = []
    at = 0
    while at < end:
        for header, raw in batches_of(client.fetch(tp, at).records):
            assert header.base_offset == at
            found += [(it.key, it.value, tuple(it.headers)) for it in iter_records(raw)]
            at = header.base_offset + header.last_offset_delta + 1
    return found


def read_topic(cluster: SyncCluster, topic: str) -> list[list[Row]]:
    client = client_for(settings_of(cluster).client)
    return [read(client, TopicPartition(topic, it)) for it in client.partitions_for(topic)]


# --- columns


def test_a_value_alone(cluster: SyncCluster, topic: str) -> None:
    cluster.create_topic(topic, 1)
    found = write(settings_of(cluster, topic), rows_of(value=["a", None, ""]))
    assert found.rows == 3
    assert found.bytes > 61
    assert read_topic(cluster, topic) == [[(None, b"a", ()), (None, None, ()), (None, b"", ())]]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_keys_and_values_are_strings_or_bytes(cluster: SyncCluster, topic: str, kind: Any) -> None:
    """Keys go where librdkafka with Kafka's partitioner sends them, and nulls stay nulls."""
    cluster.create_topic(topic, 5)
    keys = [f"key-{it}" for it in range(50)]
    values = [None if it % 7 == 0 else f"v{it}" for it in range(50)]
    make = (lambda it: it) if kind in (pa.string(), pa.large_string()) else (lambda it: None if it is None else it.encode())
    batch = rows_of(key=([make(it) for it in keys], kind), value=([make(it) for it in values], kind))
    assert write(settings_of(cluster, topic), batch).rows == 50
    peer = f"{topic}-peer"
    cluster.create_topic(peer, 5)
    producer = embedded.producer(cluster, partitioner="murmur2_random")
    for key, value in zip(keys, values, strict=True):
        producer.produce(peer, key=key, value=value)
    assert producer.flush(20) == 0
    assert read_topic(cluster, topic) == read_topic(cluster, peer)


def test_headers_are_kept_in_order_and_tombstones_have_them_too(cluster: SyncCluster, topic: str) -> None:
    cluster.create_topic(topic, 1)
    headers = [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        [],
        None,
        [{"key": "", "value": b""}],
    ]
    write(settings_of(cluster, topic), rows_of(key=["k"] * 4, value=(["v", "w", "x", None],), headers=(headers, HEADERS)))
    assert read_topic(cluster, topic) == [
        [
            (b"k", b"v", (("a", b"1"), ("a", None))),
            (b"k", b"w", ()),
            (b"k", b"x", ()),
            (b"k", None, (("", b""),)),
        ]
    ]


def test_the_partition_column_decides_where_it_is_not_null(cluster: SyncCluster, topic: str) -> None:
    cluster.create_topic(topic, 3)
    batch = rows_of(key=["k"] * 5, value=list("abcde"), partition=([2, 0, None, 2, None], pa.int32()))
    write(settings_of(cluster, topic), batch)
    found = [[value for _, value, _ in rows] for rows in read_topic(cluster, topic)]
    by_key = f"{topic}-by-key"
    cluster.create_topic(by_key, 3)
    write(settings_of(cluster, by_key), rows_of(key=["k"], value=["x"]))
    own = next(at for at, rows in enumerate(read_topic(cluster, by_key)) if rows)
    wanted: list[list[bytes]] = [[b"b"], [], [b"a", b"d"]]
    wanted[own] = sorted([*wanted[own], b"c", b"e"])
    assert found == wanted


@pytest.mark.parametrize("partition", [3, -1])
def test_a_partition_that_is_not_there_is_an_error(cluster: SyncCluster, topic: str, partition: int) -> None:
    cluster.create_topic(topic, 3)
    with pytest.raises(SinkError, match=f"partition {partition} of topic {topic}: allowed is 0 to 2"):
        write(settings_of(cluster, topic), rows_of(value=["a"], partition=([partition], pa.int32())))
    assert read_topic(cluster, topic) == [[], [], []]


def test_the_topic_column_and_the_option_over_it(cluster: SyncCluster, topic: str) -> None:
    one, two = f"{topic}-one", f"{topic}-two"
    cluster.create_topic(one, 2)
    cluster.create_topic(two, 1)
    batch = rows_of(topic=[one, two, one, two], key=(["k", None, "k", None],), value=list("abcd"), other=[1, 2, 3, 4])
    write(settings_of(cluster), batch)
    assert sorted(it for rows in read_topic(cluster, one) for it in rows) == [(b"k", b"a", ()), (b"k", b"c", ())]
    assert read_topic(cluster, two) == [[(None, b"b", ()), (None, b"d", ())]]
    write(settings_of(cluster, two), rows_of(topic=([None, one], pa.string()), value=["e", "f"]))
    assert [value for _, value, _ in read_topic(cluster, two)[0]] == [b"b", b"d", b"e", b"f"]
    with pytest.raises(SinkError, match=r"null topic present in the data\. Use the topic option for setting a topic"):
        write(settings_of(cluster), rows_of(topic=([one, None], pa.string()), value=["e", "f"]))


def test_rows_without_a_key_go_in_turn_and_tasks_begin_elsewhere(cluster: SyncCluster, topic: str) -> None:
    cluster.create_topic(topic, 3)
    batches = [rows_of(value=[f"{at}-{row}" for row in range(4)]) for at in range(6)]
    write(settings_of(cluster, topic), *batches, turn=1)
    found = [[value for _, value, _ in rows] for rows in read_topic(cluster, topic)]
    wanted = [[f"{at}-{row}".encode() for at in ats for row in range(4)] for ats in ((2, 5), (0, 3), (1, 4))]
    assert found == wanted


def test_nothing_to_write_asks_nobody(topic: str) -> None:
    """A task without rows does not even need a cluster."""
    settings = SinkSettings(client=ClientSettings(bootstrap=("127.0.0.1:1",), retry_timeout_ms=0), topic=topic)
    assert write(settings) == Written(rows=0, bytes=0)
    assert write(settings, rows_of(value=([], pa.string()))) == Written(rows=0, bytes=0)


def test_an_unknown_topic_is_named(cluster: SyncCluster) -> None:
    settings = settings_of(cluster, "not:allowed", retry_timeout_ms=200)
    with pytest.raises(Exception, match="not:allowed"):
        write(settings, rows_of(value=["a"]))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_and_batches_up_to_the_limit(cluster: SyncCluster, topic: str, codec: str) -> None:
    cluster.create_topic(topic, 2)
    values = [f"{it:06d}" + "x" * 500 for it in range(3_000)]
    settings = settings_of(cluster, topic, compression=codec, max_request_bytes=100_000)
    written = write(settings, rows_of(key=[str(it % 2) for it in range(3_000)], value=values))
    found = read_topic(cluster, topic)
    assert sorted(value for rows in found for _, value, _ in rows) == [it.encode() for it in values]
    for rows in found:
        assert [value for _, value, _ in rows] == sorted(value for _, value, _ in rows)
    assert embedded.consume(cluster, topic, 1)[:1] == [found[0][0][1].decode()]
    sizes = []
    client = client_for(settings.client)
    for tp in (TopicPartition(topic, 0), TopicPartition(topic, 1)):
        at = 0
        while len(data := client.fetch(tp, at, max_wait_ms=0).records):
            for header, _raw in batches_of(data):
                sizes.append(header.size_bytes)
                assert header.producer_id >= 0
                assert header.attributes & 7 == ["none", "gzip", "snappy", "lz4", "zstd"].index(codec)
                at = header.base_offset + header.last_offset_delta + 1
    assert max(sizes) <= 100_000
    assert sum(sizes) == written.bytes


def test_records_that_are_too_large_name_the_partition_and_the_limit(cluster: SyncCluster, topic: str) -> None:
    cluster.create_topic(topic, 1, config={"max.message.bytes": 2_000})
    with pytest.raises(SinkError, match=f"{topic}-0: MESSAGE_TOO_LARGE: .*kafka.max.request.size is the limit"):
        write(settings_of(cluster, topic, max_request_bytes=1_024), rows_of(value=["x" * 3_000]))
    with pytest.raises(SinkError, match=f"{topic}-0: MESSAGE_TOO_LARGE: .*max.message.bytes allows 2000; the records were not"):
        write(settings_of(cluster, topic), rows_of(value=["x" * 3_000]))


def test_a_topic_with_smaller_batches_names_the_option_that_makes_them_smaller(cluster: SyncCluster, topic: str) -> None:
    cluster.create_topic(topic, 1, config={"max.message.bytes": 20_000})
    rows = rows_of(value=["v" * 1_000] * 100)
    with pytest.raises(
        SinkError, match=rf"{topic}-0: MESSAGE_TOO_LARGE: .*kafka\.max\.request\.size=1048576 .*max\.message\.bytes"
    ):
        write(settings_of(cluster, topic), rows)
    assert write(settings_of(cluster, topic, max_request_bytes=20_000), rows).rows == 100
    assert len(read_topic(cluster, topic)[0]) == 100


def test_a_streams_records_say_which_batch_they_are_of(cluster: SyncCluster, topic: str) -> None:
    """The same whoever writes it, behind the row's own headers; numbered over the whole task, whatever the partition."""
    cluster.create_topic(topic, 2)
    own = [[{"key": "mine", "value": b"1"}], None, None, None]
    first = rows_of(value=list("abcd"), partition=([0, 1, 0, 1], pa.int32()), headers=(own, HEADERS))
    second = rows_of(value=["e"], partition=([0], pa.int32()), headers=([None], HEADERS))
    for _attempt in range(2):
        write(settings_of(cluster, topic), first, second, stamp="query/7/3")
    found = read_topic(cluster, topic)
    stamped = [[(value, dict(headers)[BATCH_HEADER]) for _, value, headers in rows] for rows in found]
    once = [
        [(b"a", b"query/7/3/0"), (b"c", b"query/7/3/2"), (b"e", b"query/7/3/4")],
        [(b"b", b"query/7/3/1"), (b"d", b"query/7/3/3")],
    ]
    assert stamped == [rows * 2 for rows in once]
    assert found[0][0][2] == (("mine", b"1"), (BATCH_HEADER, b"query/7/3/0"))


def test_without_idempotence_batches_have_no_producer(cluster: SyncCluster, topic: str) -> None:
    cluster.create_topic(topic, 1)
    write(settings_of(cluster, topic, idempotent=False, acks=1), rows_of(value=["a"]))
    client = client_for(settings_of(cluster).client)
    (header, _raw), *_ = batches_of(client.fetch(TopicPartition(topic, 0), 0).records)
    assert (header.producer_id, header.base_sequence) == (-1, -1)


# --- failures


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_a_leader_goes_in_the_middle(cluster: SyncCluster, topic: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost, nothing is there twice, and every partition has its rows in their order."""
    cluster.create_topic(topic, 4)
    monkeypatch.setattr(producing, "GATHERED_BYTES", 300_000)
    settings = settings_of(cluster, topic)
    total, size = 400, 500
    old = cluster.leader(topic, 0)
    assert old is not None
    with KraftliteWriter(client_for(settings.client), settings) as writer:
        for at in range(total):
            if at == 150:
                assert (cluster.hw(topic, 0) or 0) > 0
                getattr(cluster, how)(old)
            numbers = range(at * size, (at + 1) * size)
            writer.add(rows_of(key=[str(it % 37) for it in numbers], value=[f"{it:09d}" + "x" * 90 for it in numbers]))
        assert writer.finish().rows == total * size
    cluster.wait_for(topic=topic, leader=other_than(old))
    found = [[(value or b"")[:9] for _, value, _ in rows] for rows in read_topic(cluster, topic)]
    counted = Counter(value for rows in found for value in rows)
    assert len(counted) == total * size, "lost"
    assert max(counted.values()) == 1, "twice"
    assert all(rows == sorted(rows) for rows in found)


def test_rows_are_cut_to_what_may_be_gathered(cluster: SyncCluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One large batch of rows is sent in pieces; a row larger than a piece goes alone."""
    monkeypatch.setattr(producing, "GATHERED_BYTES", 10_000)
    cluster.create_topic(topic, 1)
    values = [f"{it:03d}" + "x" * (30_000 if it == 50 else 300) for it in range(200)]
    settings = settings_of(cluster, topic)
    write(settings, rows_of(key=["k"] * 200, value=values))
    assert [value for _, value, _ in read_topic(cluster, topic)[0]] == [it.encode() for it in values]
    headers = [header for header, _ in batches_of(client_for(settings.client).fetch(TopicPartition(topic, 0), 0).records)]
    assert len(headers) > 5
    assert all(it.size_bytes <= 11_000 or it.count == 1 for it in headers)
    assert [it.base_sequence for it in headers] == [it.base_offset for it in headers]


def test_an_error_of_the_sender_is_the_writers(cluster: SyncCluster, topic: str) -> None:
    """What fails behind `add` comes out of the next call, and nothing goes on behind it."""
    cluster.create_topic(topic, 1)
    settings = settings_of(cluster, topic, delivery_timeout_ms=500)
    with pytest.raises(UnknownTopic, match=r"-9"), KraftliteWriter(client_for(settings.client), settings) as writer:
        writer._targets, writer._index = [TopicPartition(topic, 9)], {TopicPartition(topic, 0): 0}
        writer.add(rows_of(value=["a"]))
        writer.finish()
    assert read_topic(cluster, topic) == [[]]


# --- exactly once


def staging(client: KafkaClient, settings: SinkSettings, query: str, task: int = 0) -> Staging:
    assert settings.exactly_once is not None
    cluster = KafkaCluster(client, settings.exactly_once.state_topic, settings.exactly_once.timeout_ms)
    since = cluster.decisions_end()
    return Staging(cluster, prefix="kraftlite", query=query, batch=0, run="r", since=since, task=task)


@pytest.mark.parametrize("when", ["before other partitions", "before the records", "before the marker"])
def test_sx_04_a_task_whose_transaction_has_ended_says_why(
    cluster: SyncCluster, topic: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Its records are gone, and the error names what may be the cause."""
    monkeypatch.setattr(producing, "GATHERED_BYTES", 1_000)
    cluster.create_topic(topic, 2)
    settings = replace(settings_of(cluster, topic), exactly_once=ExactlyOnce())
    client = KafkaClient(settings.client)
    with KraftliteWriter(client, settings, staging=staging(client, settings, topic)) as writer:
        for _ in range(2):
            writer.add(rows_of(value=["x" * 900], partition=pa.array([0], pa.int32())))
        if when == "before the marker":
            writer.add(rows_of(value=["x" * 900], partition=pa.array([0], pa.int32())))
            writer._flush()
            writer._collect()
        twin = KafkaClient(settings.client)
        staging(twin, settings, topic).begin()
        if when == "before other partitions":
            writer.add(rows_of(value=["x"], partition=pa.array([1], pa.int32())))
        with pytest.raises(
            SinkError, match=r"(PRODUCER_FENCED|INVALID_PRODUCER_EPOCH).*longer than kafka\.transaction\.timeout\.ms"
        ):
            writer.finish()


def test_sx_04_a_task_that_fails_leaves_nothing_open(cluster: SyncCluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not committed by anybody, and would hold readers until its timeout; an attempt that was fenced ends nobody's."""
    monkeypatch.setattr(producing, "GATHERED_BYTES", 1_000)
    cluster.create_topic(topic, 2)
    settings = replace(settings_of(cluster, topic), exactly_once=ExactlyOnce())

    def begun(writer: KraftliteWriter) -> None:
        for _ in range(2):
            writer.add(rows_of(value=["x" * 900], partition=pa.array([0], pa.int32())))
        writer._flush()
        writer._collect()

    first, second = KafkaClient(settings.client), KafkaClient(settings.client)
    name = staging(first, settings, topic).transactional_id
    failing = KraftliteWriter(first, settings, staging=staging(first, settings, topic))
    with pytest.raises(SinkError, match="partition 7 of topic"), failing:
        begun(failing)
        cluster.wait_for_transaction(name, state="Ongoing")
        failing.add(rows_of(value=["x"], partition=pa.array([7], pa.int32())))
    cluster.wait_for_transaction(name, state="CompleteAbort")
    fenced = KraftliteWriter(first, settings, staging=staging(first, settings, topic))
    with KraftliteWriter(second, settings, staging=staging(second, settings, topic)) as writer:
        with pytest.raises(SinkError, match="partition 7 of topic"), fenced:
            begun(fenced)
            begun(writer)
            fenced.add(rows_of(value=["x"], partition=pa.array([7], pa.int32())))
        entry = writer.finish().entry
    assert entry is not None
    commit(KafkaCluster(second, STATE_TOPIC, 60_000), prefix="kraftlite", query=topic, batch=0, run="r", staged=[entry])
    assert len(committed(cluster.bootstrap_servers, topic)) == 2


@pytest.mark.parametrize(("died", "again"), [((0, 1, 2), (0,)), ((2,), (0,)), ((2,), ())], ids=["same", "others", "no rows"])
def test_sx_04_what_a_run_that_died_has_staged_is_aborted_with_the_next_batch(
    cluster: SyncCluster, topic: str, died: tuple[int, ...], again: tuple[int, ...]
) -> None:
    """Its driver died before it had decided, and the next run has rows in fewer tasks, or in others: what nobody fences would
    hold readers until the timeout. Other queries are left alone."""
    pytest.importorskip("pyspark")
    from kraftlite.spark.sink.committing import Committed, Part, commit_staged

    cluster.create_topic(topic, 2)
    settings = replace(settings_of(cluster, topic), exactly_once=ExactlyOnce())

    def stage(query: str, batch: int, task: int) -> Committed:
        client = KafkaClient(settings.client)
        own = staging(client, settings, query, task)
        with KraftliteWriter(client, settings, staging=own) as writer:
            writer.add(rows_of(value=[f"{query}-{batch}-{task}"]))
            entry = writer.finish().entry
        return Committed(rows=1, bytes=1, part=Part(query=query, batch=batch, run="r", task=task, since=0), entry=entry)

    for task in died:
        stage(topic, 0, task)
    stage(f"{topic}-other", 0, 0)
    idle = Committed(rows=0, bytes=0, part=Part(query=topic, batch=0, run="r", task=1, since=0))
    commit_staged(settings, [idle, *(stage(topic, 0, task) for task in again)], 0)
    for task in {*died} - {*again}:
        cluster.wait_for_transaction(f"kraftlite-{topic}/{task}", state="Empty")
    cluster.wait_for_transaction(f"kraftlite-{topic}-other/0", state="Ongoing")
    staging(KafkaClient(settings.client), settings, f"{topic}-other").begin()
    assert [it.value for it in committed(cluster.bootstrap_servers, topic)] == [f"{topic}-0-0".encode() for _task in again]


def test_sx_01_rows_are_staged_with_a_marker_behind_them(cluster: SyncCluster, topic: str) -> None:
    """Whatever the order and the batches of the rows, the fingerprint is theirs; a task without rows stages nothing, and nobody
    writes into the state topic itself."""
    cluster.create_topic(topic, 2)
    settings = replace(settings_of(cluster, topic), exactly_once=ExactlyOnce())
    client = KafkaClient(settings.client)

    def stage(task: int, *batches: Any, settings: SinkSettings = settings) -> Written:
        with KraftliteWriter(client, settings, staging=staging(client, settings, topic, task)) as writer:
            for batch in batches:
                writer.add(batch)
            return writer.finish()

    one = stage(0, rows_of(value=["a", "b"], key=["k", None]), rows_of(value=["c"], key=["l"])).entry
    two = stage(1, rows_of(value=["c", "b", "a"], key=["l", None, "k"])).entry
    other = stage(2, rows_of(value=["c", "b", "a"], key=["k", None, "l"])).entry
    assert one is not None and two is not None and other is not None
    assert (one.rows, one.fingerprint) == (two.rows, two.fingerprint) and other.fingerprint != one.fingerprint
    assert stage(3) == stage(3, rows_of(value=pa.array([], pa.string()))) == Written(rows=0, bytes=0, entry=None)
    state = ExactlyOnce().state_topic
    with pytest.raises(SinkError, match=f"topic {state} is the sink's own state"):
        stage(4, rows_of(value=["x"], topic=[state]), settings=replace(settings, topic=None))
    assert committed(cluster.bootstrap_servers, topic) == []
    commit(KafkaCluster(client, state, 60_000), prefix="kraftlite", query=topic, batch=0, run="r", staged=[one, two])
    assert sorted(it.value or b"" for it in committed(cluster.bootstrap_servers, topic)) == [b"a", b"a", b"b", b"b", b"c", b"c"]
