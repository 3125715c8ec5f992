"""kafka-features. Source: TO-25; Kafka's FeatureCommand."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import click

from kraftlite.cli.compat.tool import Parser, ToolError, UsageError, cluster_of
from kraftlite.cli.features import Update, feature_lines, fetch_features, level_of, level_text, update_features
from kraftlite.metadata.features import LATEST_METADATA_VERSION, METADATA_VERSION, METADATA_VERSIONS, SUPPORTED_FEATURES
from kraftlite.model.messages.choices import FeatureUpgradeType


def _parser() -> Parser:
    parser = Parser("kafka-features", "This tool manages feature flags in Kafka.")
    parser.connection(controller=True)
    actions = parser.add_subparsers(dest="command", metavar="COMMAND")
    about = "describe upgrade downgrade disable version-mapping feature-dependencies"
    for name in about.split():
        action = actions.add_parser(name, tool=f"kafka-features {name}")
        if name in ("upgrade", "downgrade"):
            action.add_argument("--metadata")
            action.add_argument("--release-version")
        if name == "version-mapping":
            action.add_argument("--release-version")
        if name != "describe" and name != "version-mapping":
            action.add_argument("--feature", action="append", default=[])
        if name in ("downgrade", "disable"):
            action.add_argument("--unsafe", action="store_true")
        if name in ("upgrade", "downgrade", "disable"):
            action.add_argument("--dry-run", action="store_true")
    return parser


def run(arguments: Sequence[str]) -> int:
    options = _parser().read(arguments)
    if options.command is None:
        raise UsageError("too few arguments: one of describe, upgrade, downgrade, disable, version-mapping, feature-dependencies")
    if options.command == "version-mapping":
        return version_mapping(options.release_version)
    if options.command == "feature-dependencies":
        return feature_dependencies(options.feature)
    cluster = cluster_of(options)
    if options.command == "describe":
        for line in feature_lines(*fetch_features(cluster)):
            click.echo(line)
        return 0
    updates, kind = _updates(options)
    lines, failed = update_features(cluster, updates, kind, dry_run=options.dry_run)
    for line in lines:
        click.echo(line)
    if failed:
        raise ToolError(f"{failed} out of {len(updates)} operation(s) failed.")
    return 0


def _updates(options: argparse.Namespace) -> tuple[list[Update], FeatureUpgradeType]:
    kind = FeatureUpgradeType.UPGRADE
    if options.command != "upgrade":
        kind = FeatureUpgradeType.UNSAFE_DOWNGRADE if options.unsafe else FeatureUpgradeType.SAFE_DOWNGRADE
    if options.command == "disable":
        if not options.feature:
            raise UsageError("Must specify at least one --feature to disable")
        return [(name, 0) for name in options.feature], kind
    if options.release_version and (options.metadata or options.feature):
        raise UsageError("Can not specify `release-version` with other feature flags.")
    updates: list[Update] = []
    try:
        if options.metadata or options.release_version:
            updates.append((METADATA_VERSION, level_of(METADATA_VERSION, options.metadata or options.release_version)))
        for item in options.feature:
            name, equals, text = item.partition("=")
            if not equals:
                raise UsageError(f"Can't parse feature=level string {item}: equals sign not found.")
            updates.append((name.strip(), level_of(name.strip(), text.strip())))
    except ValueError as error:
        raise ToolError(str(error)) from None
    if not updates:
        raise UsageError(f"You must specify at least one feature to {options.command}")
    twice = {name for name, _level in updates if [one for one, _ in updates].count(name) > 1}
    if twice:
        raise UsageError(f"Feature {min(twice)} was specified more than once.")
    return updates, kind


def version_mapping(release: str | None) -> int:
    """The levels that a release comes with."""
    level = LATEST_METADATA_VERSION
    if release is not None:
        try:
            level = level_of(METADATA_VERSION, release)
        except ValueError:
            names = [version.name for version in METADATA_VERSIONS.values()]
            raise ToolError(f"Unknown release version '{release}'. Supported versions are: {names[0]} to {names[-1]}") from None
    click.echo(f"metadata.version={level} ({level_text(METADATA_VERSION, level)})")
    for feature in SUPPORTED_FEATURES:
        if feature.name != METADATA_VERSION:
            click.echo(f"{feature.name}={feature.max_level}")
    return 0


def feature_dependencies(features: Sequence[str]) -> int:
    """No feature here depends on another one."""
    if not features:
        raise UsageError("argument --feature is required")
    known = {feature.name: feature for feature in SUPPORTED_FEATURES}
    for item in features:
        name, equals, text = item.partition("=")
        if not equals:
            raise UsageError(f"Can't parse feature=level string {item}: equals sign not found.")
        if name not in known:
            raise ToolError(f"Unknown feature: {name}")
        try:
            level = level_of(name, text)
        except ValueError as error:
            raise ToolError(str(error)) from None
        if not known[name].min_level <= level <= known[name].max_level:
            raise ToolError(f"Feature level {level} is not supported for feature {name}.")
        shown = f" ({level_text(name, level)})" if name == METADATA_VERSION else ""
        click.echo(f"{name}={level}{shown} has no dependencies.")
    return 0
