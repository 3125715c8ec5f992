"""Pushes of clients' metrics, as clients write them: OpenTelemetry's MetricsData v1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraftlite._pb import telemetry_pb2 as pb

DELTA, TOTAL = pb.TELEMETRY_TEMPORALITY_DELTA, pb.TELEMETRY_TEMPORALITY_CUMULATIVE


def attributes(values: Mapping[str, Any]) -> list[Any]:
    kinds = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}
    return [
        pb.TelemetryAttribute(key=key, value=pb.TelemetryValue(**{kinds[type(value)]: value})) for key, value in values.items()
    ]


def gauge(name: str, value: float, /, **labels: Any) -> Any:
    number = pb.TelemetryNumber(attributes=attributes(labels), as_double=value)
    return pb.TelemetryMetric(name=name, gauge=pb.TelemetryGauge(data_points=[number]))


def counter(name: str, value: int, /, *, temporality: Any = DELTA, monotonic: bool = True, **labels: Any) -> Any:
    number = pb.TelemetryNumber(attributes=attributes(labels), as_int=value)
    made = pb.TelemetrySum(data_points=[number], aggregation_temporality=temporality, is_monotonic=monotonic)
    return pb.TelemetryMetric(name=name, sum=made)


def distribution(name: str, count: int, total: float, /, **labels: Any) -> Any:
    one = pb.TelemetryDistribution(attributes=attributes(labels), count=count, sum=total)
    made = pb.TelemetryHistogram(data_points=[one], aggregation_temporality=DELTA)
    return pb.TelemetryMetric(name=name, histogram=made)


def pushed(*metrics: Any, **shared: Any) -> bytes:
    """`shared`: attributes of the client."""
    resource = pb.TelemetryResource(attributes=attributes(shared))
    scopes = [pb.ScopeMetrics(metrics=metrics)]
    data = pb.MetricsData(resource_metrics=[pb.ResourceMetrics(resource=resource, scope_metrics=scopes)])
    return bytes(data.SerializeToString())
