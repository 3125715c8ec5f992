"""Golden scenarios of data replication: `replication/*.scn`. `pytest --rewrite` renews them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.datadriven import run_scenario
from tests.harness.replication_scenarios import ScenarioRunner

FILES = sorted((Path(__file__).parent / "replication").glob("*.scn"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_replication_scenario(path: Path, rewrite: bool) -> None:
    run_scenario(path, ScenarioRunner().handle, rewrite=rewrite)
