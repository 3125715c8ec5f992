"""SaslHandshake and SaslAuthenticate where there is nothing to prove: on a listener that does not authenticate, and behind an
authentication that lasts. Before that, `kraftlite.wire.auth` takes them. Source: Kafka's KafkaApis; SE-10."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.api_keys import SASL_AUTHENTICATE, SASL_HANDSHAKE
from kraftlite.wire.apis.call import Call, cold

_TOO_LATE: Final = "SaslAuthenticate request received after successful authentication"


async def _handshake(call: Call, request: Any) -> Mapping[str, object]:
    return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": []}


async def _authenticate(call: Call, request: Any) -> Mapping[str, object]:
    return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "error_message": _TOO_LATE, "auth_bytes": b"", "session_lifetime": 0}


SASL_APIS: Final = (
    cold(SASL_HANDSHAKE, "SaslHandshake", versions=(0, 1), flexible_from=2, adapt=_handshake),
    cold(SASL_AUTHENTICATE, "SaslAuthenticate", versions=(0, 2), flexible_from=2, adapt=_authenticate),
)
