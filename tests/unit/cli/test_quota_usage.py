"""QU-12: quotas on the Prometheus page, and in `quota describe --usage`."""

from __future__ import annotations

from kraftlite.cli.quota_usage import usage_in
from kraftlite.model.messages.security import QuotaEntityPart
from kraftlite.obs.metrics import Metrics
from kraftlite.obs.quotas import register_quotas
from kraftlite.quotas.matching import PRODUCE
from kraftlite.quotas.rates import QuotaWindows
from kraftlite.quotas.usage import ClientQuotas
from tests.unit.quotas.test_usage import Story

ANY = (QuotaEntityPart(type="client-id", name=None),)


def page(clients: int, most: int = 100) -> str:
    quotas = ClientQuotas(QuotaWindows(), Story())
    quotas.set_quotas({ANY: {PRODUCE: "100"}}, measures_time=False)
    for number in range(clients):
        usage = quotas.of(PRODUCE, "ANONYMOUS", f"c{number}", 0)
        assert usage is not None
        quotas.throttle(usage, wait, 0) if (wait := usage.record(1_000 + 500 * number, 0)) else None
    metrics = Metrics()
    register_quotas(metrics, quotas, lambda: 0, most)
    return metrics.render().decode()


def test_qu_12_usage_is_read_back_from_the_page() -> None:
    rows = {row["client_id"]: row for row in usage_in("b:1", page(3))}
    assert rows["c2"] == {
        "page": "b:1",
        "quota": PRODUCE,
        "user": "",
        "client_id": "c2",
        "rate": 200.0,
        "bound": 100.0,
        "throttled_ms": 10_000.0,
        "throttled": True,
        "over_percent": 100.0,
    }
    assert (rows["c0"]["throttled"], rows["c0"]["over_percent"]) == (False, 0.0)


def test_qu_12_only_those_nearest_to_their_bound_are_shown() -> None:
    assert sorted(row["client_id"] for row in usage_in("b:1", page(9, most=2))) == ["c7", "c8"]
