"""Authorized operations: what a client is told that it may do, as bits (KIP-430).

There is no authorizer that could refuse anything, so whoever asks may do all that a resource of its kind has, as on a Kafka
broker without `authorizer.class.name`. Source: Kafka's `AclOperation` and `AclEntry.supportedOperations`.
"""

from __future__ import annotations

from typing import Final

OPERATIONS_NOT_ASKED: Final = -(2**31)

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = (
    1 << code for code in range(3, 13)
)
_CONFIGS = _DESCRIBE_CONFIGS | _ALTER_CONFIGS

TOPIC_OPERATIONS: Final = _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _CONFIGS
GROUP_OPERATIONS: Final = _READ | _DELETE | _DESCRIBE | _CONFIGS
CLUSTER_OPERATIONS: Final = _CREATE | _ALTER | _DESCRIBE | _CLUSTER_ACTION | _CONFIGS | _IDEMPOTENT_WRITE
