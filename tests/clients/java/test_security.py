"""kafka-clients, the Java client: what every client is put through at closed listeners."""

from __future__ import annotations

import pytest

from tests.clients.java import test_capabilities
from tests.clients.security import Security, told

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("clients")]


class TestSecurity(Security):
    client = test_capabilities.TestJava.client
    refusals = told(
        "SASL_AUTHENTICATION_FAILED .*SaslAuthenticationException: {}",
        token=r'SaslAuthenticationException: \{"status":"invalid_token"\}',
        authority="SslAuthenticationException: SSL handshake failed",
        broker="SslAuthenticationException: SSL handshake failed",
        expired="SslAuthenticationException: (Failed to process post-handshake messages|SSL handshake failed)",
        strangers="SslAuthenticationException: (Failed to process post-handshake messages|SSL handshake failed)",
        nobody="SslAuthenticationException: (Failed to process post-handshake messages|SSL handshake failed)",
        grant="TOPIC_AUTHORIZATION_FAILED",
    )
