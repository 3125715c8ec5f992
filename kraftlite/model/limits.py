"""Every bound of the house, by name. What Kafka configures is configured; these are the constants.

Source: docs/spec/defaults.md, and Kafka's own limits.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

MAX_INT16: Final = 2**15 - 1
MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
MAX_OFFSET: Final = 2**62
"""Far beyond what any log reaches, and far enough below 2^63 that an offset and a length can be added."""
MAX_STRING: Final = 32_767
"""The longest name: the longest string that Kafka's protocol carries."""
MAX_METADATA_VALUE_BYTES: Final = 8 * MIB
"""The longest value of a config: more does not fit into a batch of the metadata log."""

# raft
RAFT_MAX_EPOCH: Final = 2**31 - 1 - 2**16
"""Beyond it no epoch is believed, from a peer or from a file: an epoch is 31 bits wide, and candidates must be able to go on."""
RAFT_EPOCH_TRUSTED: Final = 2**30
"""Up to here a voter may name any epoch, as in Kafka: a node that was away, or is new, must believe the quorum whatever it
missed. An election every second needs thirty-four years for it."""
RAFT_EPOCH_ANSWERED: Final = 2**30 + 2**29
"""The same for answers, which come from where a voter is configured: a node that was left behind where requests are no longer
believed asks, and is told."""
RAFT_EPOCH_STEP: Final = 2**16
"""Above that an epoch is believed only so far beyond the largest that is known: no single message can use the epochs up."""
RAFT_MAX_BATCH_BYTES: Final = 8 * MIB
RAFT_MAX_FETCH_BYTES: Final = 8 * MIB
RAFT_FETCH_MAX_WAIT_MS: Final = 500
RAFT_MAX_WAITING_BATCHES: Final = 10
RAFT_OBSERVER_EXPIRY_MS: Final = 300_000
RAFT_MAX_OBSERVERS: Final = 10_000
RAFT_MAX_LISTENERS: Final = 100
"""The listeners of one voter. The record of all voters must fit into one batch."""
RAFT_MAX_LISTENER_CHARS: Final = 32_767
"""The names and hosts of the listeners of one voter together."""
RAFT_MAX_SNAPSHOT_BYTES: Final = 8 * 1024 * MIB
"""A leader that announces more is not believed."""
SNAPSHOT_CHUNK_BYTES: Final = MIB

# controller
MAX_RECORDS_PER_BATCH: Final = 10_000
LEADERS_FIRST_MS: Final = 2_000
"""The longest time between the new leaders of what a failed broker led and its fencing. It is fenced as soon as they lead."""
MAX_RECORDS_PER_USER_OP: Final = 10_000
MAX_ELECTIONS_PER_RUN: Final = 1_000
PRODUCER_ID_BLOCK_SIZE: Final = 1_000
MAX_CONTROLLER_QUEUE: Final = 100_000

# log
PRODUCER_BATCHES: Final = 10_000
"""Batches of producers between two states of all producers that a log remembers: what a truncation reads again at most, and as
much again."""

# coordinators
MAX_COORDINATED_BYTES: Final = 512 * MIB
"""The memory for the group ids that a broker coordinates, and the same for its transactional ids: half a million short ones,
16,000 of the longest."""

# transactions
MAX_TRANSACTION_RECORD_BYTES: Final = 512 * KIB
"""The longest state of a transactional id: some 100,000 partitions. Half of what a batch may have by default, so that the end of
a transaction always fits where its beginning did."""
MAX_MARKERS_PER_REQUEST: Final = 1_000
"""The markers that one broker asks another one to write at once."""
MAX_MARKER_REQUESTS_IN_FLIGHT: Final = 50
"""Such requests to one broker that are under way: one partition that is slow to replicate does not hold up all others."""
MAX_ENROLLED_PARTITIONS: Final = 10_000
"""The partitions that a broker asks for at once: as many as one produce request has."""

# names
MAX_TOPIC_NAME: Final = 249

# wire
MAX_DESCRIBE_PARTITIONS: Final = 2_000
MAX_CONFIGS_TOLD: Final = 500_000
"""Values of configs in one answer, about: what 14,000 topics have. A resource behind it is refused."""
MAX_IN_FLIGHT_PER_CONNECTION: Final = 100
MAX_STRING_BYTES: Final = 2**15 - 1
"""The longest string on the wire, in flexible versions too, as in Kafka's generated readers."""
MAX_REQUEST_ITEMS: Final = 100_000
"""Elements of all arrays of one request together, which bounds the memory that a decoded request takes, and how long the garbage
collector, which nothing runs beside, looks at it."""
MAX_RESPONSE_ITEMS: Final = 5_000_000
"""The same for a response that a client of ours reads: one for all of a large cluster has seven elements for a partition."""
MAX_PRODUCE_PARTITIONS: Final = 10_000
"""The most partitions of one produce request, which is read where it arrives: as many empty batches as a producer's
`max.request.size` holds."""
MAX_TAGGED_FIELDS: Final = 128
"""The most fields in one section of tagged fields (KIP-482); Kafka's own messages have four at most."""
MAX_LARGE_REQUESTS_BYTES: Final = 4 * MIB
"""The memory of the large requests of a broker that are worked on at a time; a larger one is worked on alone."""
MAX_FORWARD_MS: Final = 60_000
"""The time for which a broker tries to hand an admin request to the controller, whatever the client allows. As in Kafka."""

# rpc: one message carries at most a raft or replica fetch response and its head
RPC_MAX_MESSAGE_BYTES: Final = 128 * MIB
MAX_BATCH_BYTES: Final = 112 * MIB
"""The largest record batch, whatever `max.message.bytes` says: a follower gets it in one message, and beside it what there is to
say of other partitions. A client that sends as much as brokers take by default (`socket.request.max.bytes`) stays below."""
RPC_MAX_REQUEST_BYTES: Final = 4 * MIB
"""No request carries record bytes; the largest is the first of a fetch session, with thirty bytes for a partition."""
RPC_MAX_REQUEST_ITEMS: Final = 100_000
"""Elements of all the lists in one request: a microsecond each."""
RPC_MAX_ANSWER_ITEMS: Final = 1_000_000
RPC_LONG_BYTES: Final = 64 * KIB
RPC_LONG_ITEMS: Final = 5_000
"""A message with more bytes or elements is decoded or encoded on a thread: up to here it takes some 10 ms at most."""
RPC_MAX_REQUESTS_PER_STREAM: Final = 2_048
"""Under way at the same time. A caller of ours stops at half of it."""
RPC_MAX_UNREAD_BYTES_PER_STREAM: Final = 32 * MIB
RPC_MAX_UNREAD_BYTES: Final = 256 * MIB
"""Answers that peers do not take, of one stream and of all: the next request waits until they take some."""
RPC_STALLED_MS: Final = 10_000
"""A peer that takes nothing for so long, while requests wait for it, loses the stream."""
