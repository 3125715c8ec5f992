"""The end of a batch of `availableNow` is the target that was told when the run began, and never behind what was read."""

from __future__ import annotations

from kraftlite.spark.offsets import Offsets
from tests.unit.spark.test_planning import A0, A1, Cluster, Log, planner, ranges


def test_available_now_does_not_go_back_when_a_leader_was_behind() -> None:
    """The end of a batch that lies before its start would be read again in the next run."""
    cluster = Cluster(a=[Log(0, 120), Log(0, 20)])
    cluster.stale[A0] = [90]
    plans = planner(cluster)
    plans.prepare_available_now()
    at: Offsets = {A0: 100, A1: 5}
    end = plans.latest(at)
    assert end == {A0: 100, A1: 20}
    assert plans.plan(at, end) == ranges((A1, 5, 20))


def test_available_now_of_a_log_that_was_cut_behind_its_target() -> None:
    cluster = Cluster(a=[Log(0, 50)])
    plans = planner(cluster, startingOffsets="earliest")
    plans.prepare_available_now()
    cluster.logs[A0] = Log(70, 90)
    end = plans.latest(plans.initial())
    assert end == {A0: 70}, "not 50, which is not there any more"
    assert plans.latest(end) == end
