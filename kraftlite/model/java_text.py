"""Values as Java prints them, for output that is compared with that of Kafka's own tools."""

from __future__ import annotations

import math
import struct


def java_double(value: float) -> str:
    """A double as Java prints it: 1024.0, 1.048576E7."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    text = repr(float(value))
    if text in ("inf", "-inf", "nan"):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}[text]
    mantissa, exponent = f"{value:.17e}".split("e")
    for digits in range(1, 18):
        mantissa, exponent = f"{value:.{digits}e}".split("e")
        if float(f"{mantissa}e{exponent}") == value:
            break
    return f"{mantissa}E{int(exponent)}"


def java_float(value: float) -> str:
    """A float of 32 bits as Java prints it: by the fewest digits that name it."""
    if not math.isfinite(value):
        return java_double(value)
    text = ""
    for digits in range(2, 10):  # two at least, so that the smallest is 1.4E-45
        text = f"{value:.{digits}g}"
        try:
            if struct.pack(">f", float(text)) == struct.pack(">f", value):
                break
        except OverflowError:
            continue  # rounded up beyond the largest one
    return java_double(float(text))
