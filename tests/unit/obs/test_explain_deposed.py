"""Those that another one has followed and that do not know it yet: what they record then does not count."""

from __future__ import annotations

from dataclasses import replace

from kraftlite.runtime.trace import partition
from tests.unit.obs.test_explain import TP, C, Trace, _elected, ids


def test_a_controller_that_does_not_know_its_successor_writes_nothing_that_counts() -> None:
    trace = Trace()
    trace.say(1.0, C, _elected(C, 1, start=0, cause="timer:election"))
    trace.created()
    trace.say(21.0, 5, _elected(5, 2, start=1841, cause="timer:fetch leader=1"))
    isr = ((2, 3, 4), (2, 3, 4))
    trace.change(21.2, 1841, "elect_leaders type=preferred", leader=(2, 4), epoch=(4, 5), isr=isr, partition_epoch=1)
    trace.events[-1] = replace(trace.events[-1], node=5)
    trace.fenced()
    assert [s.facts["leader"] for s in trace.about().stories if s.kind == "leader_changed"] == [4]


def test_a_leader_that_was_paused_says_nothing_of_the_time_in_which_another_one_led() -> None:
    trace = Trace()
    trace.created()
    trace.fenced()
    trace.leads(21.6, 3, epoch=5, partition_epoch=1, isr=(3, 4), record=1841)
    trace.say(40.0, 2, partition.HwStalled(tp=TP, hw=90, leo=95, stalled_ms=25_000, held_by=ids(3, 4), cause="fetch"))
    trace.say(40.1, 2, partition.HwResumed(tp=TP, old=90, new=95, stalled_ms=25_100, held_by=ids(3, 4), cause="fetch"))
    stories = [story for story in trace.about().stories if story.kind == "hw_stalled"]
    assert [(story.from_ms, story.until_ms) for story in stories] == [(15_000, 21_600)]
