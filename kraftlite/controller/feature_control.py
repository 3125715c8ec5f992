"""Finalized feature levels. Source: KIP-584, KIP-778; Kafka's FeatureControlManager; CM-13, CM-53, FV-02 to FV-05."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from kraftlite.controller.results import ControllerResult, all_or_nothing
from kraftlite.metadata import features
from kraftlite.metadata.records import FeatureLevelRecord, MetadataRecord, NoOpRecord
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import (
    FeatureRange,
    FeatureUpdate,
    FeatureUpgradeType,
    UpdateFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kraftlite.timeline.collections import TimelineMap
from kraftlite.timeline.registry import TimelineRegistry

NodeRanges = Iterable[tuple[NodeId, Iterable[FeatureRange]]]


class FeatureControl:
    """`finalized`: name → level. `metadata.version` is always among them once the controller was active."""

    def __init__(
        self,
        registry: TimelineRegistry,
        supported: Iterable[FeatureRange],
        quorum_voters: tuple[NodeId, ...],
        node_id: NodeId,
    ) -> None:
        self.finalized: TimelineMap[str, int] = TimelineMap(registry)
        self._supported = {feature.name: feature for feature in supported}
        self._node_id = node_id
        self.voters: Callable[[], tuple[NodeId, ...]] = lambda: quorum_voters
        """The voters of the quorum as they are now: each must have registered before a level goes up (DQ-46)."""
        self.kraft_version: Callable[[], int] = lambda: 0
        """The level of kraft.version: a control record of the quorum says it, and none of the metadata (DQ-21)."""
        self.upgrade_kraft_version: Callable[[int, bool], None] = _no_quorum
        """Raises kraft.version to a level, or only checks whether it can. Raises ApiError."""
        self.brokers: Callable[[], NodeRanges] = tuple
        self.controllers: Callable[[], NodeRanges] = tuple
        self.before_elr: Callable[[], list[MetadataRecord]] = list
        """Makes the records that come before eligible leader replicas may be kept."""
        self.clear_elr: Callable[[], list[MetadataRecord]] = list

    @property
    def metadata_version(self) -> int | None:
        return self.finalized.get(features.METADATA_VERSION)

    @property
    def elr_enabled(self) -> bool:
        """Return whether eligible leader replicas are kept (KIP-966)."""
        return bool(self.finalized.get(features.ELIGIBLE_LEADER_REPLICAS_VERSION))

    def level_or_minimum(self) -> int:
        level = self.metadata_version
        return features.MIN_METADATA_VERSION if level is None else level

    def update(self, request: UpdateFeaturesRequest) -> ControllerResult[UpdateFeaturesResponse]:
        """All or nothing. Raises the ApiError of the first update that is refused (CM-53, FV-03)."""
        named = Counter(update.name for update in request.updates)
        records: list[MetadataRecord] = []
        for update in request.updates:
            if named[update.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Feature {update.name} appears more than once in the request.")
            self._check_update(update)
            if update.name != features.KRAFT_VERSION:
                records.append(FeatureLevelRecord(name=update.name, level=update.level))
        self._check_dependencies(request)
        records = self._with_elr(records)
        for update in request.updates:
            if update.name == features.KRAFT_VERSION and update.level > self.kraft_version():
                self.upgrade_kraft_version(update.level, request.validate_only)
                records.append(NoOpRecord())  # committed behind what the quorum has appended
        results = tuple(UpdateFeatureResult(name=it.name, error=ErrorCode.NONE, message=None) for it in request.updates)
        result = all_or_nothing("Feature levels", records, UpdateFeaturesResponse(results=results))
        return result.without_records() if request.validate_only else result

    def _check_dependencies(self, request: UpdateFeaturesRequest) -> None:
        """Check the levels as they would be after the whole request, those that it does not name too (FV-04)."""
        levels = dict(self.finalized.items()) | {update.name: update.level for update in request.updates}
        missing = features.missing_dependency(levels)
        if missing is not None:
            name, level, other, least = missing
            raise ApiError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid update version {level} for feature {name}. {name} could not be set to {level} because it depends on "
                f"{other} level {least}",
            )

    def _with_elr(self, records: list[MetadataRecord]) -> list[MetadataRecord]:
        """The eligible leader replicas are those of an unbroken time: nobody kept them up to date while they were off."""
        name = features.ELIGIBLE_LEADER_REPLICAS_VERSION
        for record in records:
            if isinstance(record, FeatureLevelRecord) and record.name == name and (record.level > 0) != self.elr_enabled:
                before = self.before_elr() if record.level > 0 else []
                return [*before, *records, *self.clear_elr()]
        return records

    def _check_update(self, update: FeatureUpdate) -> None:
        """Check one update, in Kafka's order: its kind, the level, who supports it, the direction, and what it would lose."""
        name, level = update.name, update.level
        if update.upgrade_type not in (1, 2, 3):
            raise _invalid(update, "The controller does not support the given upgrade type.")
        kind = FeatureUpgradeType(update.upgrade_type)
        current = self.kraft_version() if name == features.KRAFT_VERSION else self.finalized.get(name) or 0
        if level < 0:
            raise _invalid(update, "A feature version cannot be less than 0.")
        self._check_supported(update)
        if level < current and kind is FeatureUpgradeType.UPGRADE:
            raise _invalid(
                update,
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
                "unsafe downgrade.",
            )
        if level > current and kind is not FeatureUpgradeType.UPGRADE:
            raise _invalid(update, "Can't downgrade to a newer version.")
        if name == features.METADATA_VERSION:
            _check_metadata_downgrade(level, current, kind)
        elif name == features.KRAFT_VERSION and level < current:
            raise _invalid(update, "Can't downgrade the version of this feature.")
        elif name not in self._supported:
            raise _invalid(update, f"Feature {name} not found.")

    def _check_supported(self, update: FeatureUpdate) -> None:
        """Check that this controller, every broker and every other controller of the quorum have the level (FV-03). A feature
        that a node does not offer has the level 0 there."""
        _check_range(update, f"Local controller {self._node_id}", self._supported.values())
        for node_id, ranges in self.brokers():
            _check_range(update, f"Broker {node_id}", ranges)
        level_now = self.metadata_version
        if level_now is None or not features.supports_controller_registration(level_now):
            return
        found = {self._node_id}
        for node_id, ranges in self.controllers():
            if node_id not in found:
                _check_range(update, f"Controller {node_id}", ranges)
                found.add(node_id)
        for node_id in self.voters():
            if node_id not in found:
                raise _invalid(update, f"controller {node_id} has not registered, and may not support this feature")

    def replay(self, record: FeatureLevelRecord) -> None:
        if record.name == features.KRAFT_VERSION:
            return  # older software wrote it here; the quorum's control record counts
        own = self._supported.get(record.name)
        if record.level != 0 and (own is None or not own.min_level <= record.level <= own.max_level):
            allowed = "no level" if own is None else f"levels {own.min_level}-{own.max_level}"
            raise ValueError(f"feature {record.name} is finalized at level {record.level}, but this software supports {allowed}")
        if record.level == 0:
            self.finalized.pop(record.name)
        else:
            self.finalized[record.name] = record.level


def _check_range(update: FeatureUpdate, node: str, ranges: Iterable[FeatureRange]) -> None:
    """Check that a node, called `node`, has the level."""
    found = next((feature for feature in ranges if feature.name == update.name), None)
    least, most = (0, 0) if found is None else (found.min_level, found.max_level)
    if least <= update.level <= most:
        return
    if most == 0:
        raise _invalid(update, f"{node} does not support this feature.")
    raise _invalid(update, f"{node} only supports versions {least}-{most}" if least < most else f"{node} only supports {least}")


def _check_metadata_downgrade(level: int, current: int, kind: FeatureUpgradeType) -> None:
    """Check that no level between changes what records there are, or what is in them (FV-02)."""
    lost = [it for it in features.METADATA_VERSIONS.values() if level < it.level <= current and it.changes_metadata]
    if not lost:
        return
    if kind is FeatureUpgradeType.UNSAFE_DOWNGRADE:
        why = "Unsafe metadata downgrade is not supported in this version."
    else:
        why = "Refusing to perform the requested downgrade because it might delete metadata information."
    raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"Unsupported metadata.version downgrade from {current} to {level}. {why}")


def _no_quorum(level: int, validate_only: bool) -> None:
    raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"Nothing here can raise kraft.version to {level}.")


def _invalid(update: FeatureUpdate, reason: str) -> ApiError:
    words = f"Invalid update version {update.level} for feature {update.name}. {reason}"
    return ApiError(ErrorCode.INVALID_UPDATE_VERSION, words)
