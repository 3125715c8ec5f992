"""The numbers that requests of administrators choose from, by name.

They are apart from the messages because the command line needs no others, and a hundred messages take long to import.
"""

from __future__ import annotations

from enum import IntEnum


class ConfigResourceType(IntEnum):
    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class AlterConfigOp(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


class FeatureUpgradeType(IntEnum):
    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3
