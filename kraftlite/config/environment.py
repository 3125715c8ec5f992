"""Configuration by environment variables, as the official container image does it, and Bitnami's prefix as an alias.

Source: the official image's rule: `.` becomes `_`, `_` becomes `__`, `-` becomes `___`, under `KAFKA_`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# What the official image's scripts read for themselves: not configuration keys.
_NOT_KEYS = frozenset(
    {
        "KAFKA_VERSION",
        "KAFKA_HOME",
        "KAFKA_HEAP_OPTS",
        "KAFKA_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_DEBUG",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_CMD_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_KRAFT_CLUSTER_ID",
        "KAFKA_CLUSTER_ID",
    }
)
_RUNS = re.compile("_+")


def key_of_variable(name: str) -> str | None:
    """`KAFKA_NODE_ID` → `node.id`; None when the variable is not a configuration key."""
    if name in _NOT_KEYS or not name.startswith("KAFKA_"):
        return None
    body = name.removeprefix("KAFKA_CFG_") if name.startswith("KAFKA_CFG_") else name.removeprefix("KAFKA_")
    if not body:
        return None
    return _RUNS.sub(lambda run: _separators(len(run.group())), body.lower())


def _separators(length: int) -> str:
    # Longest first, as the image's own scripts replace: three underscores, then two, then one.
    triples, rest = divmod(length, 3)
    return "-" * triples + ("_" if rest == 2 else "." * rest)


def keys_from_environment(env: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return configuration key → (value, variable). `KAFKA_X` wins over `KAFKA_CFG_X`."""
    found: dict[str, tuple[str, str]] = {}
    for name in sorted(env, key=lambda name: (not name.startswith("KAFKA_CFG_"), name)):
        key = key_of_variable(name)
        if key is not None:
            found[key] = (env[name], name)
    return found


def cluster_id_from_environment(env: Mapping[str, str]) -> str | None:
    """`CLUSTER_ID`, or Bitnami's `KAFKA_KRAFT_CLUSTER_ID`."""
    return env.get("CLUSTER_ID") or env.get("KAFKA_KRAFT_CLUSTER_ID") or None
