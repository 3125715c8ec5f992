"""The metadata of a running cluster, where the cluster does not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlite.local.metadata import Live
from kraftlite.local.state import LocalError
from tests.harness.ui import idle_cluster


def test_a_cluster_of_which_no_broker_runs_is_not_asked(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"does not answer \(none of its brokers runs\)"):
        Live(idle_cluster(tmp_path))
