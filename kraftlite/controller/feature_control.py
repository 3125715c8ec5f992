"""Finalized feature levels. Source: KIP-584, KIP-778; Kafka's FeatureControlManager; CM-13, CM-53."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from kraftlite.controller.results import ControllerResult
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

    def __init__(self, registry: TimelineRegistry, supported: Iterable[FeatureRange], quorum_voters: tuple[NodeId, ...]) -> None:
        self.finalized: TimelineMap[str, int] = TimelineMap(registry)
        self._supported = {feature.name: feature for feature in supported}
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
        """All or nothing. Raises the ApiError of the first update that is refused (CM-53)."""
        records: list[MetadataRecord] = []
        results = []
        named = Counter(update.name for update in request.updates)
        for update in request.updates:
            if named[update.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Feature {update.name} appears more than once in the request.")
            record = self._check_update(update)
            if record is not None:
                records.append(record)
            results.append(UpdateFeatureResult(name=update.name, error=ErrorCode.NONE, message=None))
        self._check_dependencies(request)
        records = self._with_elr(records)
        for update in request.updates:
            if update.name == features.KRAFT_VERSION and update.level > self.kraft_version():
                self.upgrade_kraft_version(update.level, request.validate_only)
                records.append(NoOpRecord())  # committed behind what the quorum has appended
        result = ControllerResult(records=records, response=UpdateFeaturesResponse(results=tuple(results)), atomic=True)
        return result.without_records() if request.validate_only else result

    def _check_dependencies(self, request: UpdateFeaturesRequest) -> None:
        """Check the levels as they would be after the whole request, those that it does not name too."""
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
            if isinstance(record, FeatureLevelRecord) and record.name == name:
                before = self.before_elr() if record.level > 0 else []
                return [*before, *records, *self.clear_elr()]
        return records

    def _check_update(self, update: FeatureUpdate) -> FeatureLevelRecord | None:
        name, level = update.name, update.level
        if update.upgrade_type not in (1, 2, 3):
            raise _invalid(
                ErrorCode.INVALID_UPDATE_VERSION,
                update,
                f"The controller does not support the given upgrade type {update.upgrade_type}; allowed are 1, 2 and 3.",
            )
        kind = FeatureUpgradeType(update.upgrade_type)
        current = self.kraft_version() if name == features.KRAFT_VERSION else self.finalized.get(name) or 0
        if level < 0:
            raise _invalid(ErrorCode.INVALID_UPDATE_VERSION, update, "A feature version cannot be less than 0.")
        if level == current and current != 0:
            return None
        self._check_supported(update)
        if level < current and kind is FeatureUpgradeType.UPGRADE:
            raise _invalid(
                ErrorCode.INVALID_UPDATE_VERSION,
                update,
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
                "unsafe downgrade.",
            )
        if level > current and kind is not FeatureUpgradeType.UPGRADE:
            raise _invalid(ErrorCode.INVALID_UPDATE_VERSION, update, "Can't downgrade to a newer version.")
        if name == features.METADATA_VERSION:
            self._check_metadata_version(update, current, kind)
        if name == features.KRAFT_VERSION:
            if level < current:
                raise _invalid(ErrorCode.INVALID_UPDATE_VERSION, update, "Can't downgrade the version of this feature.")
            return None
        if level == 0 and name not in self.finalized:
            return None
        return FeatureLevelRecord(name=name, level=level)

    def _check_supported(self, update: FeatureUpdate) -> None:
        name, level = update.name, update.level
        if name not in self._supported:
            raise _invalid(ErrorCode.INVALID_UPDATE_VERSION, update, "The controller does not know this feature.")
        if level == 0 and name != features.METADATA_VERSION:
            return
        own = self._supported[name]
        if not own.min_level <= level <= own.max_level:
            raise _invalid(
                ErrorCode.INVALID_UPDATE_VERSION,
                update,
                f"Local controller only supports versions {own.min_level}-{own.max_level}",
            )
        registered = set()
        for kind, nodes in (("Broker", self.brokers()), ("Controller", self.controllers())):
            for node_id, ranges in nodes:
                if kind == "Controller":
                    registered.add(node_id)
                found = next((feature for feature in ranges if feature.name == name), None)
                if found is None:
                    raise _invalid(ErrorCode.INVALID_UPDATE_VERSION, update, f"{kind} {node_id} does not support this feature.")
                if not found.min_level <= level <= found.max_level:
                    raise _invalid(
                        ErrorCode.INVALID_UPDATE_VERSION,
                        update,
                        f"{kind} {node_id} only supports versions {found.min_level}-{found.max_level}",
                    )
        missing = [node_id for node_id in self.voters() if node_id not in registered]
        level_now = self.metadata_version
        if missing and level_now is not None and features.supports_controller_registration(level_now):
            listed = ", ".join(str(node_id) for node_id in missing)
            raise _invalid(ErrorCode.INVALID_UPDATE_VERSION, update, f"controller(s) {listed} of the quorum have not registered.")

    @staticmethod
    def _check_metadata_version(update: FeatureUpdate, current: int, kind: FeatureUpgradeType) -> None:
        if update.level < features.MIN_METADATA_VERSION:
            raise _invalid(
                ErrorCode.INVALID_UPDATE_VERSION,
                update,
                f"Unable to set metadata.version below the minimum {features.MIN_METADATA_VERSION}.",
            )
        if update.level >= current:
            return
        lossy = any(
            version.changes_metadata for level, version in features.METADATA_VERSIONS.items() if update.level < level <= current
        )
        if lossy and kind is FeatureUpgradeType.SAFE_DOWNGRADE:
            raise ApiError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Unsupported metadata.version downgrade from {current} to {update.level}. "
                "Refusing to perform the requested downgrade because it might delete metadata information.",
            )
        if lossy:
            raise _invalid(
                ErrorCode.INVALID_UPDATE_VERSION, update, "Unsafe metadata downgrade is not supported in this version."
            )

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


def _no_quorum(level: int, validate_only: bool) -> None:
    raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"Nothing here can raise kraft.version to {level}.")


def _invalid(code: ErrorCode, update: FeatureUpdate, reason: str) -> ApiError:
    return ApiError(code, f"Invalid update version {update.level} for feature {update.name}. {reason}")
