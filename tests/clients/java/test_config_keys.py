"""The table of configuration keys against the definitions of the Apache Kafka that is compared with."""

from __future__ import annotations

import subprocess
from typing import Final

import pytest

from kraftlite.model.broker_configs import BROKER_CONFIGS
from kraftlite.model.config_effects import EFFECTS, KeyEffect
from tests.clients.java import tools

pytestmark = [pytest.mark.clients, pytest.mark.jvm]

OTHER_DEFAULTS: Final = {
    "broker.id": "none is the same as -1",
    "group.coordinator.rebalance.protocols": "without streams groups",
    "metric.reporters": "no Java classes",
}


@pytest.fixture(scope="module")
def kafkas(java: None) -> dict[str, tuple[str, str]]:
    """Type and default by name."""
    command = tools.java("ConfigKeys", more=[tools.programs()])
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return {name: (kind, usual) for name, kind, usual in rows}


def test_each_key_of_kafka_is_in_a_class(kafkas: dict[str, tuple[str, str]]) -> None:
    assert len(kafkas) > 300
    assert sorted(set(kafkas) - set(EFFECTS)) == [], "say in kraftlite/model/config_effects.py what becomes of these"


def test_defaults_are_kafkas(kafkas: dict[str, tuple[str, str]]) -> None:
    """A value that Kafka has anyway is taken: what it says is what leaving the key out says."""
    wrong = []
    for name, (_, usual) in kafkas.items():
        found = KeyEffect(EFFECTS[name].rule, EFFECTS[name].default)
        same = {*usual.split(",")} == {*(found.default or "-").split(",")} or not found.departs("" if usual == "-" else usual)
        if not same and name not in OTHER_DEFAULTS:
            wrong.append(f"{name}: {found.default}, in Kafka {usual}")
    assert not wrong, "\n".join(wrong)


def test_types_are_kafkas(kafkas: dict[str, tuple[str, str]]) -> None:
    differ = {name for name, (kind, _) in kafkas.items() if name in BROKER_CONFIGS and BROKER_CONFIGS[name].type.name != kind}
    assert not differ
