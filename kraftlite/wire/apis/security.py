"""ACLs, as a broker without an authorizer answers for them.

Source: Kafka's AclApis; CM-56.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kraftlite.model.errors import ErrorCode
from kraftlite.wire.apis.call import Call, cold

_NO_AUTHORIZER: Final = "No Authorizer is configured."
_DISABLED: Final = {"error_code": ErrorCode.SECURITY_DISABLED, "error_message": _NO_AUTHORIZER}


async def _describe_acls(call: Call, request: Any) -> Mapping[str, object]:
    message = "No Authorizer is configured on the broker"
    return {"throttle_time": 0, "error_code": ErrorCode.SECURITY_DISABLED, "error_message": message, "resources": []}


async def _create_acls(call: Call, request: Any) -> Mapping[str, object]:
    return {"throttle_time": 0, "results": [_DISABLED for _ in request.creations]}


async def _delete_acls(call: Call, request: Any) -> Mapping[str, object]:
    return {"throttle_time": 0, "filter_results": [_DISABLED | {"matching_acls": []} for _ in request.filters]}


DESCRIBE_ACLS = cold(29, "DescribeAcls", versions=(1, 3), flexible_from=2, adapt=_describe_acls)
CREATE_ACLS = cold(30, "CreateAcls", versions=(1, 3), flexible_from=2, adapt=_create_acls)
DELETE_ACLS = cold(31, "DeleteAcls", versions=(1, 3), flexible_from=2, adapt=_delete_acls)
