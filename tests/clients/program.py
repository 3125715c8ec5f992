"""What the programs of clients in Python have in common: the job, the lines of events, and the word to stop."""

from __future__ import annotations

import base64
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

Job = dict[str, Any]
_LOCK = threading.Lock()


def tell(event: str, **values: Any) -> None:
    line = json.dumps({"event": event, **values})
    with _LOCK:
        print(line, flush=True)


def text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode()


def raw(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def tell_record(partition: int, offset: int, key: bytes | None, value: bytes | None, headers: Any, timestamp: int) -> None:
    shown = [[name, text(it)] for name, it in headers or ()]
    tell("record", partition=partition, offset=offset, key=text(key), value=text(value), headers=shown, timestamp=timestamp)


def administer(steps: list[Job], client: object) -> None:
    """One event for each step, which is a method of `client`. What that raises is told by its type and text."""
    for step in steps:
        method = getattr(client, step["do"])
        try:
            result = method(step)
        except Exception as error:  # noqa: BLE001 - whatever a client raises is what the test wants to see
            tell("result", do=step["do"], error=named(error))
        else:
            tell("result", do=step["do"], result=result)


def transact(steps: list[Job], client: Any, stopped: threading.Event) -> None:
    """`administer` for the steps of transactions: `client` has begin, send, copy, commit and abort."""

    class WithWait:
        def __getattr__(self, name: str) -> Any:
            return getattr(client, name)

        def wait(self, _step: Job) -> None:
            stopped.wait()

    administer(steps, WithWait())


def timeout_ms(job: Job) -> int:
    """Of a job of transactions."""
    return int(job.get("timeout_ms", 60_000))


def named(error: BaseException) -> str:
    return f"{type(error).__name__} {error}"


def security_of(job: Job) -> Job:
    """How the job says to log in; empty: not at all."""
    found: Job = job.get("security", {})
    return found


def librdkafka_login(security: Job) -> dict[str, str]:
    """The protocol, the mechanism and the files of a login, as librdkafka calls them."""
    names = {
        "protocol": "security.protocol",
        "mechanism": "sasl.mechanism",
        "ca": "ssl.ca.location",
        "certificate": "ssl.certificate.location",
        "key": "ssl.key.location",
    }
    return {name: security[it] for it, name in names.items() if it in security}


def unsecured_token(security: Job) -> str:
    """A token of OAUTHBEARER that nobody has signed."""
    now_s = time.time()
    claims = {"sub": security["username"], "iat": now_s, "exp": now_s + float(security["token_s"])}
    parts = [base64.urlsafe_b64encode(json.dumps(it).encode()).decode().rstrip("=") for it in ({"alg": "none"}, claims)]
    return ".".join([*parts, ""])


def keep_sending(job: Job, stopped: threading.Event, send: Callable[[str], None]) -> None:
    """A record after the other until the word to stop comes; each is told as `ack` or as `fail`, with what `send` raises."""
    number = 0
    while not stopped.wait(job["pause_ms"] / 1000):
        try:
            send(f"v{number}")
        except Exception as error:  # noqa: BLE001 - whatever a client raises is what the test wants to see
            tell("fail", i=number, error=named(error))
        else:
            tell("ack", i=number)
        number += 1


def main(**ops: Callable[[Job, threading.Event], None]) -> None:
    """Read the job, do it, say that it is done."""
    job = json.loads(sys.stdin.readline())
    stopped = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        stopped.set()

    threading.Thread(target=listen, daemon=True).start()
    ops[job["op"]](job, stopped)
    tell("done")
