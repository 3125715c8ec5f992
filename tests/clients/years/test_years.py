"""Clients of earlier years: each release of `versions.py` is put through the essentials of what every client can do."""

from __future__ import annotations

import pytest

from tests.clients.capabilities import Capabilities
from tests.clients.years.install import client_of
from tests.clients.years.versions import PAST, Past

ESSENTIAL = {
    "test_idempotent",
    "test_codec",
    "test_records",
    "test_group",
    "test_rebalance",
    "test_transactions",
    "test_fenced",
    "test_copy",
    "test_topics",
    "test_configs",
}
"""The others are asked of the newest release of each client alone, and of a few `KILLED`."""
KILLED = "test_transactions_while_brokers_are_killed"


def essentials_of(past: Past) -> type[Capabilities]:
    marks = [pytest.mark.clients, pytest.mark.xdist_group("clients")]
    if past.client in _RUNTIMES:
        marks.append(_RUNTIMES[past.client])
    if not past.quick:
        marks.append(pytest.mark.slow)
    essential = ESSENTIAL | ({KILLED} if past.killed else set())
    others = {name: None for name in dir(Capabilities) if name.startswith("test_") and name not in essential}
    return type(named(past), (Capabilities,), {"client": client_of(past), "pytestmark": marks, **others})


def named(past: Past) -> str:
    return "Test_" + "".join(it if it.isalnum() else "_" for it in f"{past.client} {past.version}")


_RUNTIMES = {
    "kafka-clients (Java)": pytest.mark.jvm,
    "franz-go": pytest.mark.golang,
    "Sarama": pytest.mark.golang,
    "kafka-go": pytest.mark.golang,
    "KafkaJS": pytest.mark.node,
}
for _past in PAST:
    globals()[named(_past)] = essentials_of(_past)
