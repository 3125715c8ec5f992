"""The names of `ssl.*` settings, for those that need no more of TLS yet."""

from __future__ import annotations

from typing import Final

CLIENT_OPTIONS: Final = (
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.truststore.type",
    "ssl.truststore.password",
    "ssl.keystore.location",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.type",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.enabled.protocols",
    "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
)
"""The settings of the side that dials, as of a client, or of a broker that asks for the keys of tokens over https."""
