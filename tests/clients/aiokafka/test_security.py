"""The client at closed listeners."""

from __future__ import annotations

import pytest

from tests.clients.aiokafka import test_capabilities
from tests.clients.security import Security, told

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.xdist_group("clients")]


class TestSecurity(Security):
    client = test_capabilities.TestAioKafka.client
    refusals = told(
        r"SaslAuthenticationFailed: {}",
        token="Unable to update metadata",  # it takes the answer for a success, with Apache Kafka too
        authority="CERTIFICATE_VERIFY_FAILED",
        broker="CERTIFICATE_VERIFY_FAILED.*certificate has expired",
        expired="KafkaConnectionError: Unable to bootstrap",  # the alert comes when it has gone on to its first request
        strangers="KafkaConnectionError: Unable to bootstrap",
        nobody="KafkaConnectionError: Unable to bootstrap",
        grant="TopicAuthorizationFailedError",
    )
