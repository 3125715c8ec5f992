"""gRPC channel and server options, with what each is for."""

from __future__ import annotations

import os
from typing import Final

from kraftlite.model.limits import KIB, MIB, RPC_MAX_MESSAGE_BYTES, RPC_MAX_REQUEST_BYTES

# gRPC's core writes its own lines to standard error; what they say reaches us as errors too.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

# At a fork, also one for another program (`subprocess` with a `preexec_fn`, as PySpark starts its JVM), gRPC's core would stop
# all its threads, start them again, and now and then abort the process (grpc/grpc#37259). No connection of ours is used behind
# a fork.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

Options = tuple[tuple[str, int | str], ...]

ERROR_KEY: Final = "kraftlite-error"
"""Trailing metadata of a refused unary call: Kafka's error code."""

MAX_WORDS: Final = 2_000
"""Characters of what is said beside that code, and a quarter of it where not all are ASCII: gRPC takes 8 KiB of headers for sure,
and writes up to three bytes for a character of ASCII and twelve for another."""

KEEPALIVE_MS: Final = 5_000
KEEPALIVE_TIMEOUT_MS: Final = 5_000
"""A host that vanished without a reset is noticed after both together. A paused one is, long before, by the caller's timeout."""

MAX_OUTSTANDING_CALLS: Final = 1_024
"""The most calls on one stream. More are refused to the caller with a TransportError."""

CONNECT_TIMEOUT_MS: Final = 2_000
RECONNECT_BACKOFF_MS: Final = 100
MAX_RECONNECT_BACKOFF_MS: Final = 200
"""gRPC's own back-off grows to two minutes: far beyond a node's restart."""

HANDSHAKE_TIMEOUT_MS: Final = 10_000
"""A connection that does not speak HTTP/2 until then is cut."""

MAX_IDLE_MS: Final = 600_000
"""Without a call for so long a connection is closed, as with `connections.max.idle.ms`; a peer opens another when it needs it."""

MAX_STREAMS_PER_CONNECTION: Final = 256
"""A peer's calls beyond it wait in its own channel. All of one connection may begin, or end, in one turn of the loop: 50 ms."""

MAX_METADATA_BYTES: Final = 16 * KIB
"""Headers of one call. Ours have a path, an authority and a timeout."""

_BOTH: Final[Options] = (
    ("grpc.max_send_message_length", RPC_MAX_MESSAGE_BYTES),
    ("grpc.http2.max_frame_size", MIB),
    ("grpc.http2.lookahead_bytes", 4 * MIB),
    ("grpc.http2.write_buffer_size", MIB),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
)

CHANNEL_OPTIONS: Final[Options] = (
    *_BOTH,
    ("grpc.max_receive_message_length", RPC_MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", RECONNECT_BACKOFF_MS),
    ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),  # in gRPC's words: the least time a connection attempt is given
    ("grpc.max_reconnect_backoff_ms", MAX_RECONNECT_BACKOFF_MS),
    ("grpc.use_local_subchannel_pool", 1),  # nodes in one process share nothing
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),  # at most once
    ("grpc.service_config_disable_resolution", 1),
)

SERVER_OPTIONS: Final[Options] = (
    *_BOTH,
    ("grpc.max_receive_message_length", RPC_MAX_REQUEST_BYTES),
    ("grpc.max_concurrent_streams", MAX_STREAMS_PER_CONNECTION),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.max_connection_idle_ms", MAX_IDLE_MS),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
    ("grpc.so_reuseport", 0),  # two nodes on one port must be an error
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
)
