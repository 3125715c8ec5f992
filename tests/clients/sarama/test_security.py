"""Sarama: what every client is put through at closed listeners."""

from __future__ import annotations

import pytest

from tests.clients.sarama import test_capabilities
from tests.clients.security import Security, told

pytestmark = [pytest.mark.clients, pytest.mark.golang, pytest.mark.slow, pytest.mark.xdist_group("clients")]


class TestSecurity(Security):
    client = test_capabilities.TestSarama.client
    refusals = told(
        "SASL Authentication failed: {}",
        token="SASL Authentication failed: .*OAUTHBEARER",
        authority="certificate signed by unknown authority",
        broker="certificate has expired or is not yet valid",
        expired="remote error: tls: (unknown|expired) certificate",
        strangers="remote error: tls: (bad certificate|unknown certificate authority)",
        nobody="remote error: tls: (bad certificate|certificate required)",
        grant="not authorized to access this topic",
    )
