"""kafka-clients, the Java client: the capabilities that every client is put through."""

from __future__ import annotations

import pytest

from tests.clients import programs
from tests.clients.capabilities import Capabilities
from tests.clients.java import tools

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("clients")]


def prepare() -> list[str]:
    try:
        return tools.program()
    except tools.Missing as missing:
        raise programs.Missing(str(missing)) from None


class TestJava(Capabilities):
    client = programs.Client(
        name="kafka-clients (Java)",
        version=tools.kafka_version,
        prepare=prepare,
        timed_out="INVALID_TXN_STATE",
    )
