"""How late the loop of a node is, as a histogram of its page."""

from __future__ import annotations

import asyncio
import time

from prometheus_client.parser import text_string_to_metric_families

from kraftlite.host.loop_lag import BOUNDS_S, EVERY_S, LoopLag
from kraftlite.node.traffic_metrics import register_loop_lag
from kraftlite.obs.metrics import Metrics


def samples(lag: LoopLag) -> dict[str, float]:
    metrics = Metrics({})
    register_loop_lag(metrics, lag)
    families = [it for it in text_string_to_metric_families(metrics.render().decode()) if it.name == "kraftlite_loop_lag_seconds"]
    assert [it.type for it in families] == ["histogram"]
    return {it.labels.get("le", it.name): it.value for it in families[0].samples}


def test_c2_each_tick_is_counted_at_its_bounds() -> None:
    lag = LoopLag()
    for late_s in (0.0, 0.001, 0.0011, 0.3, 99.0):
        lag.note(late_s)
    found = samples(lag)
    assert found["0.001"] == 2 and found["0.0025"] == 3 and found["0.25"] == 3 and found["0.5"] == 4 and found["10.0"] == 4
    assert found["+Inf"] == found["kraftlite_loop_lag_seconds_count"] == 5
    assert abs(found["kraftlite_loop_lag_seconds_sum"] - 99.3021) < 1e-9
    assert len(found) == len(BOUNDS_S) + 3


async def test_c2_a_loop_that_was_held_is_late_by_that_much_once() -> None:
    lag, loop = LoopLag(), asyncio.get_running_loop()
    began = loop.time()
    lag.start()
    try:
        loop.call_soon(time.sleep, 0.4)
        await asyncio.sleep(0.45)
        assert lag.total_s >= 0.29
        assert sum(lag.counts) <= (loop.time() - began - 0.4) / EVERY_S + 1, "not one for each tick that was missed"
    finally:
        lag.stop()
    told = sum(lag.counts)
    await asyncio.sleep(0.25)
    assert sum(lag.counts) == told, "it ends"
