"""Feature levels: what `metadata.version` each level is, what it allows, and what this software supports.

Source: KIP-584, KIP-778; Kafka's MetadataVersion; ML-26, CM-53, CM-54.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraftlite.model.messages.controller import FeatureRange

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"
GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataVersion:
    """One level of `metadata.version`. `changes_metadata`: a downgrade across it may lose metadata (CM-53)."""

    level: int
    name: str
    changes_metadata: bool

    @property
    def release(self) -> str:
        """`4.3-IV0` belongs to release `4.3`."""
        return self.name.split("-", 1)[0]


_TABLE: Final = (
    (7, "3.3-IV3", True),
    (8, "3.4-IV0", True),
    (9, "3.5-IV0", False),
    (10, "3.5-IV1", False),
    (11, "3.5-IV2", True),
    (12, "3.6-IV0", False),
    (13, "3.6-IV1", True),
    (14, "3.6-IV2", True),
    (15, "3.7-IV0", True),
    (16, "3.7-IV1", False),
    (17, "3.7-IV2", True),
    (18, "3.7-IV3", False),
    (19, "3.7-IV4", False),
    (20, "3.8-IV0", False),
    (21, "3.9-IV0", False),
    (22, "4.0-IV0", False),
    (23, "4.0-IV1", True),
    (24, "4.0-IV2", False),
    (25, "4.0-IV3", False),
    (26, "4.1-IV0", False),
    (27, "4.1-IV1", False),
    (28, "4.2-IV0", False),
    (29, "4.2-IV1", False),
    (30, "4.3-IV0", True),
)

METADATA_VERSIONS: Final[Mapping[int, MetadataVersion]] = {
    level: MetadataVersion(level=level, name=name, changes_metadata=changes) for level, name, changes in _TABLE
}
"""Every level this software knows, ascending."""

MIN_METADATA_VERSION: Final = 7
LATEST_METADATA_VERSION: Final = 30
"""The latest production level: what formatting and `upgrade` choose when not told otherwise."""

SUPPORTED_FEATURES: Final[tuple[FeatureRange, ...]] = (
    FeatureRange(name=ELIGIBLE_LEADER_REPLICAS_VERSION, min_level=0, max_level=1),
    FeatureRange(name=GROUP_VERSION, min_level=0, max_level=1),
    FeatureRange(name=KRAFT_VERSION, min_level=0, max_level=1),
    FeatureRange(name=METADATA_VERSION, min_level=MIN_METADATA_VERSION, max_level=LATEST_METADATA_VERSION),
    FeatureRange(name=TRANSACTION_VERSION, min_level=0, max_level=2),
)
"""The features that a node of this software registers. `eligible.leader.replicas.version` 1: KIP-966; `kraft.version` 1: the
voters are in the log (KIP-853); `group.version` 1: KIP-848; `transaction.version` 1: flexible records of transactions, 2: an
epoch for each transaction (KIP-890)."""

DEPENDENCIES: Final[Mapping[tuple[str, int], Mapping[str, int]]] = {
    (ELIGIBLE_LEADER_REPLICAS_VERSION, 1): {METADATA_VERSION: 23},
}
"""The needs of a level of a feature: other features, at these levels at least."""


DEFAULT_LEVELS: Final[Mapping[str, tuple[tuple[int, int], ...]]] = {
    KRAFT_VERSION: ((21, 1),),
    TRANSACTION_VERSION: ((24, 2),),
    GROUP_VERSION: ((22, 1),),
    ELIGIBLE_LEADER_REPLICAS_VERSION: ((26, 1),),
}
"""The features beside `metadata.version`, in the order in which Kafka's tools print them: since which `metadata.version` which
level of them belongs to it (FV-01)."""


def missing_dependency(levels: Mapping[str, int]) -> tuple[str, int, str, int] | None:
    """Return a feature and its level, and the feature and level that it needs and `levels` do not have; None when all is
    there."""
    for (name, level), needed in DEPENDENCIES.items():
        if levels.get(name, 0) >= level:
            for other, least in needed.items():
                if levels.get(other, 0) < least:
                    return name, levels[name], other, least
    return None


def supported_range(feature: str) -> FeatureRange | None:
    """The levels of `feature` that this software supports; None for a feature it does not know."""
    return next((known for known in SUPPORTED_FEATURES if known.name == feature), None)


def metadata_version(level: int) -> MetadataVersion:
    """The level's entry. Raises ValueError that names the level and those that are allowed."""
    found = METADATA_VERSIONS.get(level)
    if found is None:
        raise ValueError(
            f"metadata.version {level} is not known to this software, which supports levels {MIN_METADATA_VERSION} "
            f"({METADATA_VERSIONS[MIN_METADATA_VERSION].name}) to {LATEST_METADATA_VERSION} "
            f"({METADATA_VERSIONS[LATEST_METADATA_VERSION].name})"
        )
    return found


def metadata_version_from_name(text: str) -> MetadataVersion:
    """A level by its name (`4.3-IV0`), its release (`4.3`: the release's last level) or its number.

    Raises ValueError that names the text and what is allowed.
    """
    if text.isdecimal():
        return metadata_version(int(text))
    matches = [version for version in METADATA_VERSIONS.values() if text in (version.name, version.release)]
    if not matches:
        names = ", ".join(version.name for version in METADATA_VERSIONS.values())
        raise ValueError(f"metadata.version {text!r} is not known: expected one of {names}, a release such as 4.3, or a level")
    return matches[-1]


def default_level(feature: str, level: int) -> int:
    """Return the level of `feature` that belongs to a `metadata.version`: with which a cluster of it begins, and to which
    `--release-version` takes it (KIP-1022). `kraft.version` begins with 0 here, for the voters are static."""
    known = supported_range(feature)
    most = 0 if known is None else known.max_level
    return min(most, max((default for since, default in DEFAULT_LEVELS[feature] if level >= since), default=0))


def supports_scram(level: int) -> bool:
    """Return whether there are SCRAM credentials (KIP-900), from 3.5-IV2 on."""
    return level >= 11


def skips_leader_epoch_bump_on_isr_shrink(level: int) -> bool:
    """Return whether a shrinking ISR no longer raises the leader epoch, which is so from 3.6-IV0 on (CM-26)."""
    return level >= 12


def supports_delegation_tokens(level: int) -> bool:
    """Return whether there are delegation tokens (KIP-900), from 3.6-IV2 on."""
    return level >= 14


def supports_transactions(level: int) -> bool:
    """Return whether metadata transactions are allowed (KIP-868), from 3.6-IV1 on."""
    return level >= 13


def supports_controller_registration(level: int) -> bool:
    """Return whether controllers register (KIP-919), from 3.7-IV0 on."""
    return level >= 15


def supports_cordoning(level: int) -> bool:
    """Return whether log directories can be cordoned (KIP-1066), from 4.3-IV0 on."""
    return level >= 30


def supports_directories(level: int) -> bool:
    """Return whether log directories are assigned (KIP-858), from 3.7-IV2 on."""
    return level >= 17
