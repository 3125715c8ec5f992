"""The sink's options, checked before any row is read.

Source: Spark's KafkaSourceProvider; SX-01, SX-05.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from kraftlite.exactly_once.records import DEFAULT_PREFIX, STATE_TOPIC, check_name
from kraftlite.model.limits import MAX_INT32
from kraftlite.spark.kafka_options import client_settings
from kraftlite.spark.sink.producing import ExactlyOnce, SinkSettings

AT_LEAST_ONCE: Final = "at_least_once"
EXACTLY_ONCE: Final = "exactly_once"
MODES: Final = (AT_LEAST_ONCE, EXACTLY_ONCE)
MODE: Final = "kraftlite.sink.mode"
HEADERS: Final = "kraftlite.sink.headers"
PREFIX: Final = "kraftlite.sink.transactional.id.prefix"
STATE: Final = "kraftlite.sink.state.topic"
JOB: Final = "kraftlite.sink.job.id"
TIMEOUT: Final = "kafka.transaction.timeout.ms"
TIMEOUT_MS: Final = 900_000
NAMES: Final = ("topic", MODE, HEADERS, PREFIX, STATE, JOB)
OF_SPARK: Final = ("checkpointlocation", "queryname", "path")
"""Options of Spark itself, which it hands on to the sink."""


def sink_settings(options: Mapping[str, str]) -> SinkSettings:
    """Options by name in any case. Raises ValueError naming the option, its value and what is allowed."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in NAMES and name not in OF_SPARK and not name.startswith("kafka."):
            near = difflib.get_close_matches(name, (*NAMES, "kafka.bootstrap.servers"), n=1)
            hint = f"; did you mean {near[0]}?" if near else "."
            raise ValueError(f"option {name} is not known to the sink{hint} Known are kafka.*, {', '.join(NAMES)}")
    exactly_once = _choice(given, MODE, MODES) == EXACTLY_ONCE
    stamped = _choice(given, HEADERS, ("true", "false")) == "true"
    topic = given.get("topic")
    if topic is not None and not topic.strip():
        raise ValueError(f"topic={topic!r}: allowed is the name of a topic")
    topic = None if topic is None else topic.strip()
    own = {PREFIX, STATE, JOB}
    if exactly_once:
        own.add(TIMEOUT)
    kafka = {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.") and name not in own}
    client = client_settings(kafka, reads=False)
    if not exactly_once:
        for name in sorted(own & given.keys()):
            raise ValueError(f"{name}={given[name]!r} means nothing without {MODE}={EXACTLY_ONCE}")
        return SinkSettings(client=client, topic=topic, stamped=stamped)
    if client.acks != -1 or not client.idempotent:
        raise ValueError(f"{MODE}={EXACTLY_ONCE} needs kafka.acks=all and kafka.enable.idempotence=true, which are the defaults")
    settings = _exactly_once(given)
    if topic == settings.state_topic:
        raise ValueError(f"topic={topic!r}: allowed is another one than {STATE}")
    return SinkSettings(client=client, topic=topic, stamped=stamped, exactly_once=settings)


def _choice(given: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """The first of those that are allowed is the default."""
    value = given.get(name, allowed[0]).strip().lower()
    if value not in allowed:
        raise ValueError(f"{name}={given[name]!r}: allowed is {' or '.join(allowed)}")
    return value


def _exactly_once(given: Mapping[str, str]) -> ExactlyOnce:
    job = given.get(JOB)
    timeout = given.get(TIMEOUT, str(TIMEOUT_MS)).strip()
    if not timeout.isascii() or not timeout.isdigit() or not 1 <= len(timeout) <= 10 or not 0 < int(timeout) <= MAX_INT32:
        raise ValueError(f"{TIMEOUT}={given[TIMEOUT]!r}: allowed is a whole number from 1 to {MAX_INT32}")
    return ExactlyOnce(
        prefix=check_name(given.get(PREFIX, DEFAULT_PREFIX).strip(), PREFIX),
        state_topic=check_name(given.get(STATE, STATE_TOPIC).strip(), STATE),
        timeout_ms=int(timeout),
        job=None if job is None else check_name(job.strip(), JOB),
    )
