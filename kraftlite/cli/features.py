"""feature describe|upgrade|downgrade|disable, in the layout of kafka-features (TO-25)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

from kraftlite.cli.common import output_option, print_json
from kraftlite.cli.target import Target, target_options
from kraftlite.client.cluster import ClusterClient, check
from kraftlite.client.connection import code_of
from kraftlite.metadata.features import (
    DEFAULT_LEVELS,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
    default_level,
    supported_range,
)
from kraftlite.model.errors import ErrorCode
from kraftlite.model.limits import MAX_INT16
from kraftlite.model.messages.choices import FeatureUpgradeType

Update = tuple[str, int]


@dataclass(frozen=True)
class Feature:
    """One feature as a broker reports it in ApiVersions. `finalized` 0: not finalized."""

    name: str
    min_level: int
    max_level: int
    finalized: int


def fetch_features(cluster: ClusterClient, node_id: int | None = None) -> tuple[list[Feature], int]:
    """Supported features by name, and the epoch of the finalized ones; -1 when it is not known. `node_id`: who is asked."""
    values = {"client_software_name": "kraftlite", "client_software_version": "1"}
    found = check(cluster.call(18, 4, values, broker=node_id))
    finalized = {str(one.name): int(one.max_version_level) for one in found.finalized_features}
    features = [
        Feature(str(one.name), int(one.min_version), int(one.max_version), finalized.pop(str(one.name), 0))
        for one in found.supported_features
    ]
    features += [Feature(name, level, level, level) for name, level in finalized.items()]
    return sorted(features, key=lambda feature: feature.name), int(found.finalized_features_epoch)


def level_text(name: str, level: int) -> str:
    """`metadata.version` has names for its levels."""
    if name != METADATA_VERSION:
        return str(level)
    known = METADATA_VERSIONS.get(level)
    return f"UNKNOWN {level}" if known is None else known.name


def level_of(name: str, text: str) -> int:
    """A number, or for `metadata.version` the name of a version or of a release. ValueError for what there is not."""
    if text.isascii() and text.isdecimal() and int(text) <= MAX_INT16:
        return int(text)
    if name == METADATA_VERSION:
        short = ".".join(text.split(".")[:2])
        found = [level for level, version in METADATA_VERSIONS.items() if short in (version.name, version.release)]
        if found:
            return max(found)
        names = ", ".join(version.name for version in METADATA_VERSIONS.values())
        raise ValueError(f"Unknown metadata.version '{text}'. Supported metadata.version are: {names}")
    raise ValueError(f"Can't parse feature=level string {name}={text}: allowed is a level from 0 to {MAX_INT16}")


def feature_lines(features: Sequence[Feature], epoch: int) -> list[str]:
    return [
        f"Feature: {one.name:<42}SupportedMinVersion: {level_text(one.name, one.min_level):<17}"
        f"SupportedMaxVersion: {level_text(one.name, one.max_level):<17}"
        f"FinalizedVersionLevel: {level_text(one.name, one.finalized):<17}Epoch: {epoch if epoch >= 0 else '-'}"
        for one in features
    ]


def release_updates(release: str, kind: FeatureUpgradeType) -> list[Update]:
    """Every feature at the level that belongs to a release; an upgrade leaves out those that it does not have (KIP-1022).
    ValueError for a release that there is not."""
    level = level_of(METADATA_VERSION, release)
    found = [(name, default_level(name, level)) for name in DEFAULT_LEVELS if supported_range(name) is not None]
    return [
        (METADATA_VERSION, level),
        *[(name, default) for name, default in found if default > 0 or kind is not FeatureUpgradeType.UPGRADE],
    ]


def update_features(
    cluster: ClusterClient, updates: Sequence[Update], kind: FeatureUpgradeType, *, verb: str, dry_run: bool
) -> tuple[list[str], int]:
    """The line for each update, by name, and how many were refused: all of them when one was. `verb`: upgrade, downgrade or
    disable."""
    values = {
        "timeout": 30_000,
        "feature_updates": [{"feature": name, "max_version_level": level, "upgrade_type": int(kind)} for name, level in updates],
        "validate_only": dry_run,
    }
    answer = cluster.call(57, 2, values)
    code = code_of(answer)
    lines = []
    for name, level in sorted(updates):
        to = "" if verb == "disable" else f" to {level}"
        if code is ErrorCode.NONE:
            lines.append(f"{name} {'can be' if dry_run else 'was'} {verb}d{to}.")
        else:
            reason = answer.error_message or code.name
            lines.append(f"{'Can not' if dry_run else 'Could not'} {verb} {name}{to}. {reason}")
    return lines, 0 if code is ErrorCode.NONE else len(updates)


@click.command("describe")
@target_options
@output_option
def describe_features(target: Target, output: str) -> None:
    """The features of the cluster: what its brokers support and what is finalized."""
    features, epoch = fetch_features(target.cluster())
    if output == "json":
        print_json({"epoch": epoch, "features": [one.__dict__ for one in features]})
        return
    for line in feature_lines(features, epoch):
        click.echo(line)


def _updates(feature: Sequence[str], metadata: str | None, release: str | None, kind: FeatureUpgradeType) -> list[Update]:
    found: dict[str, int] = {}
    try:
        if release is not None:
            if feature or metadata:
                raise click.UsageError("--release-version goes without --feature and --metadata: it names all features")
            return release_updates(release, kind)
        if metadata is not None:
            found[METADATA_VERSION] = level_of(METADATA_VERSION, metadata)
        for item in feature:
            name, equals, text = item.partition("=")
            if not equals:
                raise click.UsageError(f"--feature {item}: allowed is name=level")
            if name.strip() in found:
                raise click.UsageError(f"{name.strip()} is named twice")
            found[name.strip()] = level_of(name.strip(), text.strip())
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return list(found.items())


def _run(target: Target, updates: list[Update], kind: FeatureUpgradeType, verb: str, *, dry_run: bool) -> None:
    lines, failed = update_features(target.cluster(), updates, kind, verb=verb, dry_run=dry_run)
    for line in lines:
        click.echo(line)
    if failed:
        raise click.ClickException(f"{failed} out of {len(updates)} operation(s) failed.")


_FEATURE = click.option("--feature", multiple=True, metavar="NAME=LEVEL", help="A feature; repeatable.")
_METADATA = click.option("--metadata", metavar="V", help="The level of metadata.version, for example 4.1-IV0 or 4.1.")
_RELEASE = click.option("--release-version", metavar="V", help="Every feature at the level of this release, for example 4.1.")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Only say whether it could be done.")
_UNSAFE = click.option("--unsafe", is_flag=True, help="Even when metadata may be lost.")


@click.command("upgrade")
@_FEATURE
@_METADATA
@_RELEASE
@_DRY_RUN
@target_options
def upgrade_features(
    feature: tuple[str, ...], metadata: str | None, release_version: str | None, dry_run: bool, target: Target
) -> None:
    """Finalize features at higher levels; without any, metadata.version at the latest."""
    kind = FeatureUpgradeType.UPGRADE
    updates = _updates(feature, metadata, release_version, kind) or [(METADATA_VERSION, LATEST_METADATA_VERSION)]
    _run(target, updates, kind, "upgrade", dry_run=dry_run)


@click.command("downgrade")
@_FEATURE
@_METADATA
@_RELEASE
@_UNSAFE
@_DRY_RUN
@target_options
def downgrade_features(
    feature: tuple[str, ...],
    metadata: str | None,
    release_version: str | None,
    unsafe: bool,
    dry_run: bool,
    target: Target,
) -> None:
    """Finalize features at lower levels."""
    kind = FeatureUpgradeType.UNSAFE_DOWNGRADE if unsafe else FeatureUpgradeType.SAFE_DOWNGRADE
    updates = _updates(feature, metadata, release_version, kind)
    if not updates:
        raise click.UsageError("nothing to do: give --feature, --metadata or --release-version")
    _run(target, updates, kind, "downgrade", dry_run=dry_run)


@click.command("disable")
@click.option("--feature", multiple=True, required=True, metavar="NAME", help="A feature; repeatable.")
@_UNSAFE
@_DRY_RUN
@target_options
def disable_features(feature: tuple[str, ...], unsafe: bool, dry_run: bool, target: Target) -> None:
    """Finalize features no more."""
    kind = FeatureUpgradeType.UNSAFE_DOWNGRADE if unsafe else FeatureUpgradeType.SAFE_DOWNGRADE
    _run(target, [(name, 0) for name in dict.fromkeys(feature)], kind, "disable", dry_run=dry_run)
