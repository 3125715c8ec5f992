"""The limits that the machine sets to this process."""

from __future__ import annotations

import resource
from contextlib import suppress


def raise_file_limit() -> None:
    """Allow as many open files as the system grants without privileges, as the JVM does for Kafka: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # some systems name a hard limit that they do not give
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
