"""The configuration: files and environments with things done to them are taken, or refused in lines that a person can read."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kraftlite.config.server import ConfigError, load
from kraftlite.model.broker_configs import BROKER_CONFIGS
from tests.fuzz import mutate, values

SOUND: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@127.0.0.1:39093",
    "listeners": "PLAINTEXT://127.0.0.1:39092,REPLICATION://127.0.0.1:39192,CONTROLLER://127.0.0.1:39093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:GRPC,CONTROLLER:GRPC",
    "inter.broker.listener.name": "REPLICATION",
    "controller.listener.names": "CONTROLLER",
}
ODD: Final = (
    *(
        "",
        " ",
        "0",
        "-1",
        "1",
        "2147483647",
        "2147483648",
        "-2147483649",
        "9223372036854775807",
        "9223372036854775808",
        "1e400",
        "nan",
    ),
    *(
        "true",
        "yes",
        "abc",
        "x,y",
        ",",
        ",,",
        "a:b",
        ":",
        "://",
        "PLAINTEXT://",
        "PLAINTEXT://:0",
        "PLAINTEXT://[::1",
        "X://h:99999",
    ),
    *(
        "1@",
        "1@h",
        "1@h:x",
        "-1@h:1",
        "1@h:1,1@h:1",
        "broker",
        "controller,controller",
        "/dev/null",
        "/nonexistent/\x00",
        "\\",
        "${x}",
    ),
    *("a" * 70_000, "ä", "\x1b[31m", "0x10", "1_000", "١٢", "INF", "-0", "+5", "  7  "),
)
KEYS: Final = tuple(sorted(BROKER_CONFIGS))
SLOW_EVERY: Final = 400
"""Of these, one is given to a process, which says what it says on a terminal."""


def draw(rng: random.Random) -> tuple[bytes, dict[str, str]]:
    """A file and an environment."""
    found = dict(SOUND)
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        key = rng.choice(sorted(SOUND)) if rng.randrange(3) == 0 else rng.choice(KEYS)
        found[key] = rng.choice(ODD)
    if rng.randrange(4) == 0:
        found.pop(rng.choice(sorted(found)))
    data = "\n".join(f"{key}={value}" for key, value in found.items()).encode("utf-8", "surrogatepass")
    if rng.randrange(3) == 0:
        data = mutate.damage(data, rng)
    env: dict[str, str] = {}
    for _ in range(rng.choice((0, 0, 1, 3))):
        name = (
            "KAFKA_" + rng.choice(KEYS).upper().replace(".", "_") if rng.randrange(4) else "KAFKA_" + "_" * rng.randrange(6) + "X"
        )
        env[name] = rng.choice(ODD).replace("\x00", "")
    if rng.randrange(20) == 0:
        env["CLUSTER_ID"] = rng.choice(values.TEXTS).replace("\x00", "")
    return data, env


def wrong(path: Path, env: dict[str, str]) -> str | None:
    """What is wrong with how this configuration is taken."""
    try:
        load(path, env)
    except ConfigError as error:
        for problem in error.problems:
            if "\n" in problem or len(problem) > 5000 or not problem.strip():
                return f"a problem is not one line a person can read: {problem[:200]!r}"
            if any(ord(it) < 32 or ord(it) == 127 for it in problem):
                return f"control characters reach the terminal: {problem[:200]!r}"
        return None
    except Exception as error:  # noqa: BLE001 - anything else is the finding
        return f"{type(error).__name__}: {error}"
    return None


def by_a_process(path: Path, env: dict[str, str]) -> str | None:
    """A node that is not formatted: it never gets far, and says so."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("KAFKA_", "CLUSTER_"))}
    command = [sys.executable, "-m", "kraftlite", "start", "--config", str(path)]
    directory = ["--override", f"log.dirs={path.parent / 'data'}"]
    done = subprocess.run(command + directory, env={**kept, **env}, capture_output=True, timeout=120, check=False)
    said = done.stderr.decode(errors="replace")
    if "Traceback" in said or done.returncode == 0 or not said.strip():
        return f"exit status {done.returncode}: {said[-1500:]}"
    return None


def hunt(seed: int, seconds: float, say: Callable[[str], None], *, cases: int | None = None, slow: bool = True) -> Counter[str]:
    found: Counter[str] = Counter()
    rng = random.Random(f"{seed}/config")
    end, count = time.monotonic() + seconds, 0
    with tempfile.TemporaryDirectory(prefix="kraftlite-fuzz-") as folder:
        path = Path(folder) / "server.properties"
        while (count < cases) if cases is not None else time.monotonic() < end:
            data, env = draw(rng)
            path.write_bytes(data)
            count += 1
            said = wrong(path, env)
            if said is None and slow and count % SLOW_EVERY == 0:
                said = by_a_process(path, env)
            if said is not None:
                kind = re.sub(r"[0-9]+|'[^']*'", "N", said.splitlines()[0])[:100]
                found[kind] += 1
                if found[kind] == 1:
                    say(f"config: {said[:600]}\n    {_changed(data)} {env!r:.300}")
    say(f"config: {count} configurations")
    return found


def _changed(data: bytes) -> str:
    """The lines that are not those of a sound file."""
    usual = {f"{key}={value}".encode() for key, value in SOUND.items()}
    return repr([line[:120] for line in data.split(b"\n") if line not in usual])[:600]
