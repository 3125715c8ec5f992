"""Metrics that a client pushed, as plain points out of OpenTelemetry's MetricsData v1. Source: KIP-714; TM-03."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from kraftlite._pb import telemetry_pb2 as pb

MAX_ATTRIBUTES: Final = 64


class PointKind(Enum):
    GAUGE = "gauge"
    COUNTER = "counter"
    DISTRIBUTION = "distribution"


class Point(NamedTuple):
    """One value of a metric. `delta`: it is the change since the client's last push, and not the total.

    `value` is the sum of a distribution, and `observed` is how many it has; 0 for what is none.
    """

    name: str
    kind: PointKind
    delta: bool
    attributes: tuple[tuple[str, str], ...]
    value: float
    observed: int = 0


def points_in(data: bytes, most: int) -> tuple[list[Point], bool]:
    """The first `most` points, and whether there are more. Raises ValueError for what is no MetricsData."""
    found: list[Point] = []
    try:
        message = pb.MetricsData.FromString(data)
    except DecodeError as error:
        raise ValueError(f"{len(data)} bytes are no MetricsData of OpenTelemetry: {error}") from None
    for resource in message.resource_metrics:
        shared = _texts(resource.resource.attributes)
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in _points(metric, shared):
                    if len(found) == most:
                        return found, True
                    found.append(point)
    return found, False


def _points(metric: pb.TelemetryMetric, shared: dict[str, str]) -> Iterator[Point]:
    kind = metric.WhichOneof("data")
    if kind == "gauge":
        for number in metric.gauge.data_points:
            yield Point(metric.name, PointKind.GAUGE, False, _labels(shared, number.attributes), _value(number))
    elif kind == "sum":
        delta = metric.sum.aggregation_temporality == pb.TELEMETRY_TEMPORALITY_DELTA
        made = PointKind.COUNTER if metric.sum.is_monotonic else PointKind.GAUGE
        for number in metric.sum.data_points:
            yield Point(metric.name, made, delta, _labels(shared, number.attributes), _value(number))
    elif kind == "histogram":
        delta = metric.histogram.aggregation_temporality == pb.TELEMETRY_TEMPORALITY_DELTA
        for it in metric.histogram.data_points:
            yield Point(metric.name, PointKind.DISTRIBUTION, delta, _labels(shared, it.attributes), it.sum, it.count)


def _value(number: pb.TelemetryNumber) -> float:
    return float(number.as_int) if number.WhichOneof("value") == "as_int" else number.as_double


def _labels(shared: dict[str, str], attributes: Iterable[pb.TelemetryAttribute]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((shared | _texts(attributes)).items()))


def _texts(attributes: Iterable[pb.TelemetryAttribute]) -> dict[str, str]:
    """Texts of attributes, but for values that are neither texts nor numbers, and for those beyond `MAX_ATTRIBUTES`: points share
    those of their client, and would cost their product."""
    found = {}
    for attribute in islice(attributes, MAX_ATTRIBUTES):
        kind = attribute.value.WhichOneof("value")
        if kind == "bool_value":
            found[attribute.key] = "true" if attribute.value.bool_value else "false"
        elif kind is not None:
            found[attribute.key] = str(getattr(attribute.value, kind))
    return found
