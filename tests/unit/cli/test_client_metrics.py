"""client-metrics show: what brokers' pages say of clients that push their metrics. TM-04."""

from __future__ import annotations

import random
from uuid import UUID

from kraftlite.broker.telemetry import ClientTelemetry, PushingClient
from kraftlite.cli.client_metrics import clients_in
from kraftlite.metadata.image import ConfigurationsImage
from kraftlite.obs.client_metrics import ClientMetrics, register_client_metrics
from kraftlite.obs.metrics import Metrics
from tests.harness.clock import FakeClock
from tests.harness.otlp import counter, gauge, pushed


def test_tm_04_clients_are_read_back_from_the_page() -> None:
    clock, metrics = FakeClock(), Metrics({})
    clients = ClientMetrics(most_series=10, now_ms=clock.now_ms)
    telemetry = ClientTelemetry(
        lambda: ConfigurationsImage.EMPTY, clients, max_bytes=1, now_ms=clock.now_ms, entropy=random.Random(1)
    )
    register_client_metrics(metrics, telemetry, clients)
    for number, name in ((7, "a"), (8, "b")):
        client = PushingClient(client_id=name, software_name="lib", software_version="1.0", address="::1", port=1)
        payload = pushed(gauge("org.apache.kafka.producer.x.avg", 1.5, node="2"), counter("y", number))
        clients.take(UUID(int=number), client, 60_000, clients.decode(0, payload))
    first, second = clients_in("b:1", metrics.render().decode())
    assert first == {
        "page": "b:1",
        "client_id": "a",
        "client_instance_id": "AAAAAAAAAAAAAAAAAAAABw",
        "software_name": "lib",
        "software_version": "1.0",
        "address": "::1",
        "values": {"kafka_client_producer_x_avg{node=2}": 1.5, "kafka_client_y_total": 7.0},
    }
    assert second["values"]["kafka_client_y_total"] == 8.0
