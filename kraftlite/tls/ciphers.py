"""Cipher suites: the names of the standard, which Java and Kafka use, in OpenSSL's words. Source: RFC 5246, RFC 8446; SE-02."""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from typing import Final

TLS_1_3_SUITES: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""OpenSSL's choice and order, which Python cannot change."""
_SUITE: Final = re.compile(
    r"TLS_(?:(?P<exchange>ECDHE_ECDSA|ECDHE_RSA|DHE_RSA|RSA)_WITH_)(?P<cipher>AES_128|AES_256|CHACHA20_POLY1305)"
    r"(?:_(?P<mode>GCM|CBC))?_(?P<hash>SHA|SHA256|SHA384)"
)


def openssl_name(suite: str) -> str | None:
    """The name of a suite of TLS 1.2; None: it is not known."""
    found = _SUITE.fullmatch(suite)
    if found is None:
        return None
    exchange = "" if found["exchange"] == "RSA" else found["exchange"].replace("_", "-") + "-"
    if found["cipher"] == "CHACHA20_POLY1305":
        name = f"{exchange}CHACHA20-POLY1305"
    else:
        mode = "-GCM" if found["mode"] == "GCM" else ""
        name = f"{exchange}{found['cipher'].replace('_', '')}{mode}-{found['hash']}"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.set_ciphers(name)
    except ssl.SSLError:
        return None
    return name


def problems_of(suites: Sequence[str]) -> list[str]:
    """One text for each thing that cannot be honoured."""
    found = [f"{suite} is not known here" for suite in suites if suite not in TLS_1_3_SUITES and openssl_name(suite) is None]
    modern = [suite for suite in suites if suite in TLS_1_3_SUITES]
    if modern and TLS_1_3_SUITES[0] not in modern:
        found.append(f"of the suites of TLS 1.3 {TLS_1_3_SUITES[0]} must be among them, or none")
    return found
