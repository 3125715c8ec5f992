"""The APIs that a node offers to clients: one table, from which ApiVersions is answered (CP-04, CP-07)."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES
from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.primitives import skip_tags
from kraftlite.wire.api_versions_codec import (
    API_VERSIONS_FLEXIBLE,
    API_VERSIONS_MAX,
    ApiRange,
    ClientSoftware,
    encode_api_versions,
    parse_api_versions,
)
from kraftlite.wire.apis.acls import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from kraftlite.wire.apis.call import Api, Call
from kraftlite.wire.apis.cluster import DESCRIBE_QUORUM, ELECT_LEADERS, UNREGISTER_BROKER, UPDATE_FEATURES
from kraftlite.wire.apis.configs import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
)
from kraftlite.wire.apis.consumer_groups import CONSUMER_GROUP_DESCRIBE, CONSUMER_GROUP_HEARTBEAT
from kraftlite.wire.apis.delete_records import DELETE_RECORDS
from kraftlite.wire.apis.fetch import FETCH
from kraftlite.wire.apis.group_admin import DELETE_GROUPS, DESCRIBE_GROUPS, LIST_GROUPS
from kraftlite.wire.apis.group_offsets import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from kraftlite.wire.apis.groups import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from kraftlite.wire.apis.log_dirs import ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS
from kraftlite.wire.apis.metadata import DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS, EncodedTopics, metadata_api
from kraftlite.wire.apis.offsets import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from kraftlite.wire.apis.produce import PRODUCE
from kraftlite.wire.apis.producers import DESCRIBE_PRODUCERS
from kraftlite.wire.apis.quotas import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from kraftlite.wire.apis.reassignments import ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS
from kraftlite.wire.apis.sasl import SASL_APIS
from kraftlite.wire.apis.scram import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS
from kraftlite.wire.apis.telemetry import GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY
from kraftlite.wire.apis.tokens import (
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
)
from kraftlite.wire.apis.topics import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from kraftlite.wire.apis.transaction_admin import DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS, WRITE_TXN_MARKERS
from kraftlite.wire.apis.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
)
from kraftlite.wire.apis.voters import VOTER_APIS
from kraftlite.wire.frames import Connection
from kraftlite.wire.metering import Meter
from kraftlite.wire.request_times import RequestTimes
from kraftlite.wire.rights.table import BROKER_ROWS, Row

API_VERSIONS_KEY: Final = 18
PRODUCE_ADVERTISED_MIN: Final = 0
"""Advertised, though such requests are refused: older librdkafka compresses only for brokers that know Produce v0 to v2, and
otherwise says nothing and sends its records as they are. Source: KAFKA-18659."""
GROUP_APIS: Final = (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    FIND_COORDINATOR,
    JOIN_GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
    SYNC_GROUP,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    DELETE_GROUPS,
    OFFSET_DELETE,
    CONSUMER_GROUP_HEARTBEAT,
    CONSUMER_GROUP_DESCRIBE,
)
"""Offered where there is a group coordinator."""
TRANSACTION_APIS: Final = (ADD_PARTITIONS_TO_TXN, END_TXN, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS)
"""Offered where there is a transaction coordinator."""
TRANSACTION_OFFSET_APIS: Final = (ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT)
"""Offered where there are both coordinators."""
_HEADER = struct.Struct(">hhih")
_SOFTWARE_KEPT: Final = 256
"""Characters of a client's software that its connection keeps: whoever has not logged in yet may send 32 KiB."""
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class KafkaApis:
    """The client APIs of one listener. Called by its connections with whole requests, on the node's loop.

    What is advertised is what is in the table. A request that cannot be read or is not in the table raises ProtocolViolation,
    which closes its connection (CP-02); a bug costs its request (`Call.failed`). `requests` counts by API name.
    """

    def __init__(
        self,
        context: BrokerContext,
        listener_name: str,
        *,
        only: Iterable[Api] | None = None,
        rows: Mapping[int, Row] = BROKER_ROWS,
    ) -> None:
        """`only`: what is offered beside ApiVersions, instead of everything that a broker with this context offers. `rows`: what
        clients must be allowed to do for each; KeyError for an API without a row."""
        self._ctx = context
        self._listener = listener_name
        self.requests: Counter[str] = Counter()
        self.times: RequestTimes | None = None
        """None: nobody wants to know where the time goes."""
        api_versions = Api(
            key=API_VERSIONS_KEY,
            name="ApiVersions",
            min_version=0,
            max_version=API_VERSIONS_MAX,
            flexible_from=API_VERSIONS_FLEXIBLE,
            handle=self._api_versions,
        )
        table = self._offered(context, api_versions) if only is None else {api.key: api for api in (*only, api_versions)}
        self._table = {key: replace(api, needs=rows[key].needs, guard=rows[key].guard) for key, api in table.items()}
        self._plain = self._table
        self._ranges = tuple(
            ApiRange(key, self._table[key].min_version, self._table[key].max_version) for key in sorted(self._table)
        )
        self._advertised = tuple(
            it._replace(min_version=PRODUCE_ADVERTISED_MIN) if it.api_key == PRODUCE.key else it for it in self._ranges
        )

    @staticmethod
    def _offered(context: BrokerContext, api_versions: Api) -> dict[int, Api]:
        """The APIs of a broker with this context, by key."""
        apis = (
            PRODUCE,
            FETCH,
            LIST_OFFSETS,
            metadata_api(EncodedTopics()),
            api_versions,
            CREATE_TOPICS,
            DELETE_TOPICS,
            DELETE_RECORDS,
            INIT_PRODUCER_ID,
            OFFSET_FOR_LEADER_EPOCH,
            DESCRIBE_CONFIGS,
            ALTER_CONFIGS,
            CREATE_PARTITIONS,
            ELECT_LEADERS,
            INCREMENTAL_ALTER_CONFIGS,
            DESCRIBE_QUORUM,
            UPDATE_FEATURES,
            DESCRIBE_CLUSTER,
            UNREGISTER_BROKER,
            DESCRIBE_TOPIC_PARTITIONS,
            DESCRIBE_PRODUCERS,
            ALTER_PARTITION_REASSIGNMENTS,
            LIST_PARTITION_REASSIGNMENTS,
            DESCRIBE_CLIENT_QUOTAS,
            ALTER_CLIENT_QUOTAS,
            DESCRIBE_USER_SCRAM_CREDENTIALS,
            ALTER_USER_SCRAM_CREDENTIALS,
            LIST_CONFIG_RESOURCES,
            DESCRIBE_ACLS,
            CREATE_ACLS,
            DELETE_ACLS,
            CREATE_DELEGATION_TOKEN,
            RENEW_DELEGATION_TOKEN,
            EXPIRE_DELEGATION_TOKEN,
            DESCRIBE_DELEGATION_TOKEN,
            *SASL_APIS,
            *VOTER_APIS,
        )
        table: dict[int, Api] = {api.key: api for api in apis}
        if context.log_dirs is not None:
            table.update((api.key, api) for api in (ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS))
        if context.groups is not None:
            table.update((api.key, api) for api in GROUP_APIS)
        if context.transactions is not None:
            table.update((api.key, api) for api in TRANSACTION_APIS)
        if context.transactions is not None and context.groups is not None:
            table.update((api.key, api) for api in TRANSACTION_OFFSET_APIS)
        if context.telemetry is not None:
            table.update((api.key, api) for api in (GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY))
        if context.markers is not None:
            table[WRITE_TXN_MARKERS.key] = WRITE_TXN_MARKERS
        return table

    @property
    def listener_name(self) -> str:
        return self._listener

    @property
    def context(self) -> BrokerContext:
        return self._ctx

    def offers(self, key: int, version: int) -> bool:
        """Return whether this version of an API is taken."""
        api = self._table.get(key)
        return api is not None and api.min_version <= version <= api.max_version

    def flexible_at(self, key: int, version: int) -> bool | None:
        """Return whether an answer in this version has a flexible header; None when it is not taken."""
        if not self.offers(key, version):
            return None
        return key != API_VERSIONS_KEY and version >= self._table[key].flexible_from

    @property
    def table(self) -> Mapping[int, Api]:
        """The APIs that are offered, by key."""
        return self._table

    def intercept(self, handle_of: Callable[[Api], Callable[[Call], None]] | None) -> None:
        """Let requests that come from now on be handled as `handle_of` says, to inject faults; None: as they always were."""
        plain = self._plain
        self._table = plain if handle_of is None else {key: replace(it, handle=handle_of(it)) for key, it in plain.items()}

    @property
    def ranges(self) -> tuple[ApiRange, ...]:
        """The versions that are taken, by API key. They are the advertised ones, but for Produce."""
        return self._ranges

    def handle_request(self, connection: Connection, frame: memoryview) -> None:
        """Take one request; its response, if it has one, goes out in order through `connection`."""
        try:
            key, version, correlation_id, client_id_length = _HEADER.unpack_from(frame)
        except struct.error as error:
            raise ProtocolViolation(f"a request of {len(frame)} bytes has no header") from error
        api = self._table.get(key)
        if api is None:
            raise ProtocolViolation(f"api key {key} is not offered")
        if not api.min_version <= version <= api.max_version:
            if key != API_VERSIONS_KEY:
                raise ProtocolViolation(f"{api.name} v{version}: offered is v{api.min_version} to v{api.max_version}")
            connection.open_slot().send((self._unsupported(correlation_id, api),))
            return
        pos = 10
        client_id: bytes | None = None
        if client_id_length >= 0:
            pos += client_id_length
            if pos > len(frame):
                raise ProtocolViolation("the frame ends in the client id")
            client_id = bytes(frame[10:pos])
        elif client_id_length < -1:
            raise ProtocolViolation(f"a client id of {client_id_length} bytes")
        if version >= api.flexible_from:
            try:
                pos = pos + 1 if frame[pos] == 0 else skip_tags(frame, pos)
            except (IndexError, struct.error) as error:
                raise ProtocolViolation("the frame ends in its header") from error
        self.requests[api.name] += 1
        slot = connection.open_slot()
        gate = self._ctx.gate
        if gate is not None and not gate.is_open_for(connection.principal):
            slot.fail("the access control entries are not loaded yet")
            return
        call = Call(self._ctx, self._listener, connection, slot, api, version, correlation_id, client_id, frame, pos)
        quotas, meter = self._ctx.client_quotas, None
        if quotas is not None:
            meter = call.meter = Meter(quotas, connection, call.client_id or "", key, self._ctx.clock.now_ms)
            meter.enter()
        if self.times is not None:
            slot.timing = self.times.begin(api.name, version, connection.waited_ns)
        try:
            api.handle(call)
        except ProtocolViolation:
            raise
        except Exception as error:  # noqa: BLE001 - costs this request, see docs/adr/0005
            call.failed(error)
        if slot.timing is not None:
            slot.timing.handled()
        if meter is not None:
            meter.leave()

    # --- ApiVersions ---------------------------------------------------------------------------------------------------

    def _api_versions(self, call: Call) -> None:
        software = parse_api_versions(call.frame, call.pos, call.version)
        if software is not None and not (_SOFTWARE.fullmatch(software.name) and _SOFTWARE.fullmatch(software.version)):
            call.note_error(ErrorCode.INVALID_REQUEST)
            call.send((encode_api_versions(call.correlation_id, call.version, error=ErrorCode.INVALID_REQUEST, ranges=()),))
            return
        if software is not None:
            call.connection.software = ClientSoftware(software.name[:_SOFTWARE_KEPT], software.version[:_SOFTWARE_KEPT])
        throttle_ms = 0 if call.meter is None else call.meter.settle()
        image = self._ctx.metadata.image
        levels = dict(image.features.finalized.items()) | {KRAFT_VERSION: self._ctx.raft.kraft_version()}
        call.send(
            (
                encode_api_versions(
                    call.correlation_id,
                    call.version,
                    error=ErrorCode.NONE,
                    ranges=self._advertised,
                    supported=SUPPORTED_FEATURES,
                    finalized=levels,
                    finalized_epoch=image.offset,
                    throttle_ms=throttle_ms,
                ),
            )
        )

    @staticmethod
    def _unsupported(correlation_id: int, api: Api) -> bytes:
        """CP-03: a v0 response, so that a newer client learns which version to ask in."""
        ranges = (ApiRange(api.key, api.min_version, api.max_version),)
        return encode_api_versions(correlation_id, 0, error=ErrorCode.UNSUPPORTED_VERSION, ranges=ranges)
