"""Which of several keys holds for a listener."""

from __future__ import annotations

from kraftlite.config.listener_settings import setting_of

KEY = "sasl.jaas.config"


def test_the_nearest_key_holds() -> None:
    """KIP-103."""
    values = {KEY: "all", f"listener.name.external.{KEY}": "listener", f"listener.name.external.plain.{KEY}": "mechanism"}
    assert setting_of(values, "EXTERNAL", KEY, "PLAIN") == "mechanism"
    assert setting_of(values, "EXTERNAL", KEY, "SCRAM-SHA-256") == "listener"
    assert setting_of(values, "EXTERNAL", KEY) == "listener"
    assert setting_of(values, "INTERNAL", KEY, "PLAIN") == "all"
    assert setting_of({}, "INTERNAL", KEY) is None
