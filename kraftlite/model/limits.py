"""Every bound of the house, by name. What Kafka configures is configured; these are the constants.

Source: behaviours, defaults table, "(const)" rows, and Kafka's own limits.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1

# raft
RAFT_MAX_BATCH_BYTES: Final = 8 * MIB
RAFT_MAX_FETCH_BYTES: Final = 8 * MIB
RAFT_FETCH_MAX_WAIT_MS: Final = 500
RAFT_MAX_WAITING_BATCHES: Final = 10
RAFT_OBSERVER_EXPIRY_MS: Final = 300_000
SNAPSHOT_CHUNK_BYTES: Final = MIB

# controller
MAX_RECORDS_PER_BATCH: Final = 10_000
MAX_RECORDS_PER_USER_OP: Final = 10_000
MAX_ELECTIONS_PER_RUN: Final = 1_000
PRODUCER_ID_BLOCK_SIZE: Final = 1_000
MAX_CONTROLLER_QUEUE: Final = 100_000

# names
MAX_TOPIC_NAME: Final = 249

# wire
MAX_DESCRIBE_PARTITIONS: Final = 2_000
MAX_IN_FLIGHT_PER_CONNECTION: Final = 100
MAX_STRING_BYTES: Final = 2**15 - 1
"""Of every string on the wire, in flexible versions too, as in Kafka's generated readers."""
MAX_REQUEST_ITEMS: Final = 100_000
"""Elements of all arrays of one request together, which bounds the memory that a decoded request takes, and how long the garbage
collector, which nothing runs beside, looks at it."""
MAX_PRODUCE_PARTITIONS: Final = 10_000
"""Of one produce request, which is read where it arrives: as many empty batches as a producer's `max.request.size` holds."""
MAX_TAGGED_FIELDS: Final = 128
"""Of one section of tagged fields (KIP-482); Kafka's own messages have four at most."""
MAX_LARGE_REQUESTS_BYTES: Final = 4 * MIB
"""Of the large requests of a broker that are worked on at a time; a larger one is worked on alone."""
MAX_FORWARD_MS: Final = 60_000
"""How long a broker tries to hand an admin request to the controller, whatever the client allows. As in Kafka."""

# rpc: one message carries at most a raft or replica fetch response and its head
RPC_MAX_MESSAGE_BYTES: Final = 64 * MIB
