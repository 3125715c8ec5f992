"""What clients push, as series of the metrics page, and that all of it is bounded. TM-04."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kraftlite.broker.telemetry import PushingClient
from kraftlite.model.errors import ApiError
from kraftlite.obs.client_metrics import MAX_CLIENT_SERIES, MAX_UNPACKED_BYTES, ClientMetrics
from kraftlite.obs.metrics import Metrics
from kraftlite.rpc.telemetry import MAX_ATTRIBUTES, points_in
from tests.harness.clock import FakeClock
from tests.harness.otlp import TOTAL, counter, distribution, gauge, pushed

ME = PushingClient(client_id="me", software_name="s", software_version="1", address="127.0.0.1", port=1)
KEEP_MS = 60_000


class World:
    def __init__(self, most: int = 10_000) -> None:
        self.clock = FakeClock()
        self.clients = ClientMetrics(most_series=most, now_ms=self.clock.now_ms)
        self.metrics = Metrics({})
        self.metrics.registry.register(self.clients)

    def push(self, payload: bytes, number: int = 7, client: PushingClient = ME) -> None:
        self.clients.take(UUID(int=number), client, KEEP_MS, self.clients.decode(0, payload))

    def page(self) -> dict[str, float]:
        """By name and labels, without those that every series has."""
        found = {}
        for family in text_string_to_metric_families(self.metrics.render().decode()):
            for sample in family.samples:
                if sample.name.startswith("kafka_client_"):
                    labels = {key: text for key, text in sample.labels.items() if key not in ("client_instance_id", "client_id")}
                    found[sample.name + (str(labels) if labels else "")] = sample.value
        return found


def test_tm_04_names_and_labels_are_those_of_prometheus() -> None:
    world = World()
    world.push(
        pushed(
            gauge("org.apache.kafka.producer.node.request.latency.avg", 1.5, node_id="2"),
            counter("org.apache.kafka.producer.record.send.total", 3),
            gauge("my-App.someThing", 2.0, **{"9lives": True, "Über": 4, "client_id": "a lie"}),
            distribution("took", 4, 12.5),
            client_rack="r1",
        )
    )
    rack = "'client_rack': 'r1'"
    assert world.page() == {
        f"kafka_client_producer_node_request_latency_avg{{{rack}, 'node_id': '2'}}": 1.5,
        f"kafka_client_producer_record_send_total{{{rack}}}": 3.0,
        f"kafka_client_my_app_some_thing{{'_9lives': 'true', {rack}, 'ber': '4'}}".replace(
            f"{rack}, 'ber': '4'", f"'ber': '4', {rack}"
        ): 2.0,
        f"kafka_client_took_count{{{rack}}}": 4.0,
        f"kafka_client_took_sum{{{rack}}}": 12.5,
    }
    assert 'client_id="me",client_instance_id="AAAAAAAAAAAAAAAAAAAABw"' in world.metrics.render().decode()


def test_tm_04_changes_add_up_and_totals_do_not() -> None:
    world = World()
    for _ in range(3):
        world.push(
            pushed(
                counter("changes", 5),
                counter("totals", 5, temporality=TOTAL),
                counter("waiting", -2, monotonic=False),
                gauge("now", 5.0),
                distribution("took", 1, 2.0),
            )
        )
    assert world.page() == {
        "kafka_client_changes_total": 15.0,
        "kafka_client_totals_total": 5.0,
        "kafka_client_waiting": -6.0,
        "kafka_client_now": 5.0,
        "kafka_client_took_count": 3.0,
        "kafka_client_took_sum": 6.0,
    }


def test_tm_04_series_end_when_nothing_follows_them() -> None:
    world = World()
    world.push(pushed(gauge("a", 1.0), gauge("b", 1.0)), number=7)
    world.push(pushed(gauge("a", 2.0)), number=8)
    world.clock.advance(KEEP_MS - 1)
    assert len(list(world.clients.about())) == 2
    world.push(pushed(gauge("a", 3.0)), number=7)
    world.clock.advance(1)
    assert world.page() == {"kafka_client_a": 3.0}
    assert world.clients.series_count == 1
    assert [labels[0] for labels, _ in world.clients.about()] == ["AAAAAAAAAAAAAAAAAAAABw"]
    world.clock.advance(KEEP_MS)
    assert (world.page(), world.clients.series_count) == ({}, 0)
    world.push(pushed(counter("a", 1)))
    assert world.page() == {"kafka_client_a_total": 1.0}, "the name is free for another kind"


@pytest.mark.parametrize("second", [counter("a", 1), distribution("a", 1, 1.0)], ids=["counter", "distribution"])
def test_tm_04_a_name_is_of_one_kind_at_a_time(second: object) -> None:
    world = World()
    world.push(pushed(gauge("a", 1.0), gauge("a.total", 1.0), gauge("a.sum", 1.0)))
    world.push(pushed(second), number=8)
    assert set(world.page()) == {"kafka_client_a", "kafka_client_a_total", "kafka_client_a_sum"}
    assert world.clients.left_out["kind"] == 1


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (pushed(gauge("n" * 201, 1.0)), "name"),
        (pushed(gauge("", 1.0)), "name"),
        (pushed(gauge("...", 1.0)), "name"),
        (pushed(gauge("a", 1.0, **{"l" * 65: "x"})), "labels"),
        (pushed(gauge("a", 1.0, label="x" * 257)), "labels"),
        (pushed(gauge("a", 1.0, **{f"l{n}": "x" for n in range(17)})), "labels"),
        (pushed(gauge("a", 1.0, **{"x.y": "1", "x_y": "2"})), "labels"),
        (pushed(gauge("a", 1.0, x="a\rb")), "labels"),
        (pushed(gauge("a", 1.0), **{f"l{n}": "x" for n in range(100_000 // 16)}), "labels"),
        (pushed(counter("a", -1)), "value"),
        (pushed(distribution("a", 1, float("nan"))), "value"),
    ],
)
def test_tm_04_what_no_series_can_be_is_left_out_and_counted(payload: bytes, reason: str) -> None:
    world = World()
    world.push(payload)
    assert world.page() == {}
    assert {name: count for name, count in world.clients.left_out.items() if count} == {reason: 1}


def test_tm_04_the_series_of_all_clients_are_bounded() -> None:
    world = World(most=5)
    for number in range(10):
        world.push(pushed(gauge("a", 1.0, number=number)), number=number + 2)
    assert (len(world.page()), world.clients.left_out["series"]) == (5, 5)
    world.push(pushed(gauge("a", 2.0, number=0)), number=2)
    assert world.page()["kafka_client_a{'number': '0'}"] == 2.0, "those that are there go on"


def test_tm_04_the_series_of_one_client_are_bounded() -> None:
    world = World()
    world.push(pushed(*(gauge("a", 1.0, number=number) for number in range(MAX_CLIENT_SERIES + 10))))
    assert (world.clients.series_count, world.clients.left_out["series"]) == (MAX_CLIENT_SERIES, 1)
    world.push(pushed(*(gauge("b", 1.0, number=number) for number in range(7))))
    assert (world.clients.series_count, world.clients.left_out["series"]) == (MAX_CLIENT_SERIES, 8)


@given(
    st.lists(
        st.tuples(
            st.sampled_from((gauge, counter, lambda name, value, **labels: distribution(name, 1, value, **labels))),
            st.text(max_size=12) | st.sampled_from(("a", "a.total", "a.sum", "a_count", "A", "_a")),
            st.dictionaries(
                st.text(max_size=6) | st.sampled_from(("le", "quantile", "__name__", "client_id")), st.text(max_size=6)
            ),
        ),
        max_size=12,
    )
)
def test_tm_04_whatever_clients_call_their_metrics_the_page_can_be_read(pushes: list[Any]) -> None:
    world = World()
    for number, (make, name, labels) in enumerate(pushes):
        world.push(pushed(make(name, 1, **labels)) if "name" not in labels else b"", number=2 + number % 3)
    page = world.metrics.render().decode()
    lines = [line.rpartition(" ")[0] for line in page.splitlines() if line.startswith("kafka_client_")]
    assert len(lines) == len(set(lines)), "no series is there twice"
    families = [family for family in text_string_to_metric_families(page) if family.name.startswith("kafka_client_")]
    assert len({family.name for family in families}) == len(families), "no name is there twice"
    ours = {"client_instance_id", "client_id"}
    for family in families:
        for sample in family.samples:
            assert ours <= set(sample.labels)
            assert not {"le", "quantile"} & set(sample.labels)
            assert sample.labels["client_id"] == "me"


def test_tm_04_names_of_clients_are_cut() -> None:
    world = World()
    long = PushingClient(client_id="c" * 30_000, software_name="s", software_version="1", address="::1", port=1)
    world.push(pushed(gauge("a", 1.0)), client=long)
    assert "c" * 256 + '"' in world.metrics.render().decode()


def test_tm_04_what_all_points_share_is_bounded() -> None:
    points, more = points_in(pushed(gauge("a", 1.0, own="x"), **{f"l{n}": "x" for n in range(1_000)}), 10)
    assert (len(points), len(points[0].attributes), more) == (1, MAX_ATTRIBUTES + 1, False)


def test_tm_03_a_push_unfolds_to_a_bound() -> None:
    from kraftlite.log import codecs

    world = World()
    with pytest.raises(ApiError, match=f"more than {MAX_UNPACKED_BYTES} bytes"):
        world.clients.decode(codecs.GZIP, codecs.compress(codecs.GZIP, bytes(MAX_UNPACKED_BYTES + 1)))
    with pytest.raises(ValueError, match="1 bytes are no MetricsData of OpenTelemetry"):
        world.clients.decode(codecs.NONE, b"\xff")
