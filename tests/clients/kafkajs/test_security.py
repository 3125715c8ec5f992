"""KafkaJS: what every client is put through at closed listeners."""

from __future__ import annotations

import pytest

from tests.clients.kafkajs import test_capabilities
from tests.clients.security import Security, told

pytestmark = [pytest.mark.clients, pytest.mark.node, pytest.mark.slow, pytest.mark.xdist_group("clients")]


class TestSecurity(Security):
    client = test_capabilities.TestKafkaJs.client
    refusals = told(
        "KafkaJSSASLAuthenticationError .*{}",
        token="ILLEGAL_SASL_STATE",  # it takes the answer for a success, and goes on
        authority="self-signed certificate|unable to get local issuer certificate|unable to verify the first certificate",
        broker="certificate has expired",
        expired="alert certificate (unknown|expired)",
        strangers="alert (certificate unknown|unknown ca)",
        nobody="alert (bad certificate|certificate required)",
        grant="TOPIC_AUTHORIZATION_FAILED",
    )
