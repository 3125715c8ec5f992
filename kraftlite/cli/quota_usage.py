"""quota describe --usage: what brokers' metrics say of quotas, as a table (QU-12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from kraftlite.cli.common import print_json
from kraftlite.cli.metrics_pages import read_pages

_RATES: Final = {
    "kafka_server_produce_byte_rate": "producer_byte_rate",
    "kafka_server_fetch_byte_rate": "consumer_byte_rate",
    "kafka_server_request_request_time": "request_percentage",
}
_OTHERS: Final = {
    "kraftlite_quota_bound": "bound",
    "kraftlite_quota_throttled_seconds_total": "throttled_ms",
    "kraftlite_quota_throttled_now": "throttled",
}


def show_usage(pages: Sequence[str], user: str | None, client_id: str | None, output: str) -> None:
    rows = [row for page, text in read_pages(pages) for row in usage_in(page, text)]
    rows = [row for row in rows if user in (None, row["user"]) and client_id in (None, row["client_id"])]
    rows.sort(key=lambda row: (not row["throttled"], -row["over_percent"], row["quota"], row["user"], row["client_id"]))
    if output == "json":
        print_json(rows)
        return
    if not rows:
        click.echo("No client with a quota has asked for anything.")
    for row in rows:
        whom = ", ".join(f"{kind} {name}" for kind, name in (("user", row["user"]), ("client-id", row["client_id"])) if name)
        state = "throttled now" if row["throttled"] else "not throttled"
        over = f", {row['over_percent']:.0f} % over" if row["over_percent"] > 0 else ""
        click.echo(
            f"{row['page']}: {whom}: {row['quota']} {row['rate']:.1f} of {row['bound']:g}{over}; {state}, "
            f"{row['throttled_ms']:.0f} ms in all"
        )


def usage_in(page: str, text: str) -> list[dict[str, Any]]:
    """One entry for each client and quota that a Prometheus page knows."""
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            quota = _RATES.get(sample.name)
            name = "rate" if quota is not None else _OTHERS.get(sample.name)
            if name is None:
                continue
            key = _key(quota or sample.labels["quota"], sample.labels)
            found.setdefault(key, {"rate": 0.0, "bound": 0.0, "throttled_ms": 0.0, "throttled": 0.0})[name] = (
                sample.value * 1000 if name == "throttled_ms" else sample.value
            )
    rows = []
    for (quota, user, client_id), values in found.items():
        over = (values["rate"] / values["bound"] - 1) * 100 if values["bound"] else 0.0
        named = {"page": page, "quota": quota, "user": user, "client_id": client_id}
        rows.append({**named, **values, "throttled": bool(values["throttled"]), "over_percent": round(over, 1)})
    return rows


def _key(quota: str, labels: Mapping[str, str]) -> tuple[str, str, str]:
    return quota, labels["user"], labels["client_id"]
