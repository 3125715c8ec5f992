"""ACLs and delegation tokens, as a broker without an authorizer and without authenticated clients answers them.

Source: Kafka's AclApis and KafkaApis; CM-56, CM-60.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kraftlite.model.errors import ErrorCode
from kraftlite.wire.apis.call import Call, cold

_NO_AUTHORIZER: Final = "No Authorizer is configured."
_DISABLED: Final = {"error_code": ErrorCode.SECURITY_DISABLED, "error_message": _NO_AUTHORIZER}
_NO_TIME: Final = 0


async def _describe_acls(call: Call, request: Any) -> Mapping[str, object]:
    message = "No Authorizer is configured on the broker"
    return {"throttle_time": 0, "error_code": ErrorCode.SECURITY_DISABLED, "error_message": message, "resources": []}


async def _create_acls(call: Call, request: Any) -> Mapping[str, object]:
    return {"throttle_time": 0, "results": [_DISABLED for _ in request.creations]}


async def _delete_acls(call: Call, request: Any) -> Mapping[str, object]:
    return {"throttle_time": 0, "filter_results": [_DISABLED | {"matching_acls": []} for _ in request.filters]}


def _token_refused(**more: object) -> Mapping[str, object]:
    """Tokens are for clients that have authenticated, and no listener here authenticates."""
    return {"error_code": ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "throttle_time": 0} | more


async def _create_token(call: Call, request: Any) -> Mapping[str, object]:
    return _token_refused(
        principal_type="User",
        principal_name="ANONYMOUS",
        token_requester_principal_type="User",
        token_requester_principal_name="ANONYMOUS",
        issue_timestamp=_NO_TIME,
        expiry_timestamp=_NO_TIME,
        max_timestamp=_NO_TIME,
        token_id="",
        hmac=b"",
    )


async def _changed_token(call: Call, request: Any) -> Mapping[str, object]:
    return _token_refused(expiry_timestamp=_NO_TIME)


async def _describe_tokens(call: Call, request: Any) -> Mapping[str, object]:
    return _token_refused(tokens=[])


DESCRIBE_ACLS = cold(29, "DescribeAcls", versions=(1, 3), flexible_from=2, adapt=_describe_acls)
CREATE_ACLS = cold(30, "CreateAcls", versions=(1, 3), flexible_from=2, adapt=_create_acls)
DELETE_ACLS = cold(31, "DeleteAcls", versions=(1, 3), flexible_from=2, adapt=_delete_acls)
CREATE_DELEGATION_TOKEN = cold(38, "CreateDelegationToken", versions=(1, 3), flexible_from=2, adapt=_create_token)
RENEW_DELEGATION_TOKEN = cold(39, "RenewDelegationToken", versions=(1, 2), flexible_from=2, adapt=_changed_token)
EXPIRE_DELEGATION_TOKEN = cold(40, "ExpireDelegationToken", versions=(1, 2), flexible_from=2, adapt=_changed_token)
DESCRIBE_DELEGATION_TOKEN = cold(41, "DescribeDelegationToken", versions=(1, 3), flexible_from=2, adapt=_describe_tokens)
