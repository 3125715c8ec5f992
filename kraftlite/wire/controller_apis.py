"""The APIs that a controller offers to clients: those of a broker that the active controller decides, and those of the quorum.

Source: KIP-919, KIP-853; CB-01. Nothing else is advertised: the other calls between nodes are not Kafka's here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

from kraftlite.broker.handlers.at_controller import (
    alter_configs_here,
    describe_controllers,
    list_reassignments_here,
)
from kraftlite.broker.handlers.context import BrokerContext, NodeContext
from kraftlite.model.errors import ErrorCode
from kraftlite.wire.apis import KafkaApis
from kraftlite.wire.apis.acls import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from kraftlite.wire.apis.call import Api, Call, cold
from kraftlite.wire.apis.cluster import DESCRIBE_QUORUM, ELECT_LEADERS, UNREGISTER_BROKER, UPDATE_FEATURES
from kraftlite.wire.apis.configs import DESCRIBE_CONFIGS, incremental_alter, legacy_alter
from kraftlite.wire.apis.metadata import describe_cluster_as
from kraftlite.wire.apis.quotas import ALTER_CLIENT_QUOTAS
from kraftlite.wire.apis.reassignments import ALTER_PARTITION_REASSIGNMENTS, list_as
from kraftlite.wire.apis.sasl import SASL_APIS
from kraftlite.wire.apis.scram import ALTER_USER_SCRAM_CREDENTIALS
from kraftlite.wire.apis.tokens import (
    CREATE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
)
from kraftlite.wire.apis.topics import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from kraftlite.wire.apis.voters import UPDATE_RAFT_VOTER, VOTER_APIS
from kraftlite.wire.rights.table import CONTROLLER_ROWS


async def _describe_cluster(call: Call, request: Any) -> Mapping[str, object]:
    """A client of version 0 cannot ask for controllers, and is told so."""
    answer = describe_cluster_as(call, request, describe_controllers)
    if call.version == 0 and answer["error_code"] is ErrorCode.MISMATCHED_ENDPOINT_TYPE:
        return {**answer, "error_code": ErrorCode.INVALID_REQUEST}
    return answer


CONTROLLER_APIS: Final[tuple[Api, ...]] = (
    *SASL_APIS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_ACLS,
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_CONFIGS,
    cold(33, "AlterConfigs", versions=(0, 2), flexible_from=2, adapt=partial(legacy_alter, decide=alter_configs_here)),
    CREATE_PARTITIONS,
    CREATE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    ELECT_LEADERS,
    cold(
        44,
        "IncrementalAlterConfigs",
        versions=(0, 1),
        flexible_from=1,
        adapt=partial(incremental_alter, decide=alter_configs_here),
    ),
    ALTER_PARTITION_REASSIGNMENTS,
    cold(
        46,
        "ListPartitionReassignments",
        versions=(0, 0),
        flexible_from=0,
        adapt=partial(list_as, decide=list_reassignments_here),
    ),
    ALTER_CLIENT_QUOTAS,
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_QUORUM,
    UPDATE_FEATURES,
    cold(60, "DescribeCluster", versions=(0, 2), flexible_from=0, adapt=_describe_cluster),
    UNREGISTER_BROKER,
    *VOTER_APIS,
    UPDATE_RAFT_VOTER,
)


def controller_apis(context: NodeContext, listener: str) -> KafkaApis:
    """The APIs of one listener of a controller."""
    # The rows use no field that a NodeContext does not have; a test calls each of them with one.
    return KafkaApis(cast(BrokerContext, context), listener, only=CONTROLLER_APIS, rows=CONTROLLER_ROWS)
