"""The client at closed listeners."""

from __future__ import annotations

import pytest

from tests.clients.kafka_python import test_capabilities
from tests.clients.security import Security, told

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.xdist_group("clients")]


class TestSecurity(Security):
    client = test_capabilities.TestKafkaPython.client
    goes_on = False  # its idempotent producer takes the refusal for final, with Apache Kafka too
    refusals = told(
        "Unable to bootstrap",  # the answer or the end of the connection, whichever it sees first
        token="Unable to bootstrap",
        authority="CERTIFICATE_VERIFY_FAILED",
        broker="CERTIFICATE_VERIFY_FAILED.*certificate has expired",
        expired="ALERT_CERTIFICATE_(UNKNOWN|EXPIRED)",
        strangers="Unable to bootstrap",
        nobody="ALERT_(BAD_CERTIFICATE|CERTIFICATE_REQUIRED)",
        grant="TopicAuthorizationFailedError",
    )
