"""Any fault at any time, drawn from a seed: nothing acknowledged is lost, nothing read changes, everything recovers.

`KRAFTLITE_CHAOS_SEEDS=7,20-29 pytest -m slow tests/cluster/test_chaos.py` runs those seeds; the schedule of a seed is always the
same, the moments at which it hits are not. `KRAFTLITE_CHAOS_KEEP=DIR` keeps the cluster's files of a run that failed.
`KRAFTLITE_CHAOS_DEBUG=eos,msg` (with `-s`) lets the idempotent producers tell what librdkafka does.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.harness.chaos import run_seed
from tests.harness.seeds import seeds_in


def _keep() -> Path | None:
    folder = os.environ.get("KRAFTLITE_CHAOS_KEEP")
    return Path(folder) if folder else None


@pytest.mark.cluster
@pytest.mark.parametrize("seed", [1, 4])
def test_chaos(seed: int) -> None:
    run_seed(seed, duration_s=10, keep=_keep())


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds_in("KRAFTLITE_CHAOS_SEEDS"))
def test_chaos_more(seed: int) -> None:
    run_seed(seed, duration_s=25, keep=_keep())
