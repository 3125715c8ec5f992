"""Drives kcat by the job on standard input (the contract: tests/clients/programs.py). KCAT says where it is."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import threading
import time
from typing import Any

from tests.clients.program import Job, administer, librdkafka_login, main, security_of, tell

KCAT = os.environ.get("KCAT", "kcat")
BLOCK = 1024
"""kcat reads standard input in blocks of so many bytes, and sends none of its lines before a block is full."""
PAUSE_MS = 100
"""The pauses between attempts to reach a broker."""


def secured(job: Job) -> list[str]:
    """The options with which kcat logs in. Tokens that nobody has signed librdkafka makes by itself."""
    given = security_of(job)
    found = librdkafka_login(given)
    if "token_s" in given:
        claims = f"principal={given['username']} lifeSeconds={round(given['token_s'])}"
        found |= {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": claims}
    elif "username" in given:
        found |= {"sasl.username": given["username"], "sasl.password": given["password"]}
    return [word for name, value in found.items() for word in ("-X", f"{name}={value}")]


def session(job: Job, stopped: threading.Event) -> None:
    """One kcat writes until the word to stop. It tells of acknowledgements at its third level of words, on standard error as of
    what goes wrong, and not of which record."""
    command = [KCAT, "-P", "-E", "-vvv", "-b", job["bootstrap"], "-t", job["topic"], *secured(job)]
    for name in ("reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms"):
        command += ["-X", f"{name}={PAUSE_MS}"]
    command += ["-X", "message.timeout.ms=20000", "-X", "linger.ms=0"]
    process = subprocess.Popen(command, stdin=-1, stdout=-1, stderr=subprocess.STDOUT, text=True, bufsize=1)
    assert process.stdin is not None and process.stdout is not None
    told: Any = process.stdout

    def listen() -> None:
        for number, line in enumerate(told):
            if "Message delivered" in line:
                tell("ack", i=number)
            elif "Delivery failed" in line:
                tell("fail", i=number, error=line)
            elif "ERROR" in line or "FAIL" in line:
                tell("fail", i=-1, error=line)

    listening = threading.Thread(target=listen, daemon=True)
    listening.start()
    number = 0
    while not stopped.wait(job["pause_ms"] / 1000) and process.poll() is None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(f"v{number}".ljust(BLOCK) + "\n")
        number += 1
    process.kill()
    process.wait(30)
    listening.join(30)


def produce(job: Job, _stopped: threading.Event) -> None:
    """kcat tells of no single acknowledgement: its exit says that all are there."""
    records = job["records"]
    acks = {"0": "0", "1": "1", "all": "-1"}[job["acks"]]
    command = [KCAT, "-P", "-b", job["bootstrap"], "-t", job["topic"], "-K", "\x02", "-Z", "-X", f"request.required.acks={acks}"]
    command += ["-z", job.get("codec", "none"), *secured(job)]
    if job.get("idempotent"):
        command += ["-X", "enable.idempotence=true"]
    if "partition" in records[0]:
        command += ["-p", str(records[0]["partition"])]
    for name, value in records[0].get("headers", ()):
        command += ["-H", f"{name}={value}"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdin is not None
    for it in records:
        process.stdin.write(f"{it.get('key') or ''}\x02{it.get('value') or ''}\n")
        if job.get("pause_ms"):
            process.stdin.flush()
            time.sleep(job["pause_ms"] / 1000)
    _out, errors = process.communicate(timeout=120)
    for i in range(len(records)):
        if process.returncode == 0:
            tell("ack", i=i)
        else:
            tell("fail", i=i, error=errors)


def show(line: str) -> None:
    it = json.loads(line)
    headers = it.get("headers", [])
    pairs = [[headers[n], headers[n + 1]] for n in range(0, len(headers), 2)]
    where = {name: it[name] for name in ("partition", "offset", "key")}
    tell("record", **where, value=it["payload"], headers=pairs, timestamp=it["ts"])


def read(job: Job, _stopped: threading.Event) -> None:
    start = f"s@{job['time_ms']}" if "time_ms" in job else str(job.get("offset", 0))
    command = [KCAT, "-C", "-J", "-q", "-b", job["bootstrap"], "-t", job["topic"], "-p", str(job["partition"]), "-o", start]
    command += secured(job)
    done = subprocess.run([*command, "-c", str(job["count"])], capture_output=True, text=True, timeout=120, check=True)
    for line in done.stdout.splitlines():
        show(line)


_MOVED = re.compile(r"% Group \S+ rebalanced.*?(assign|revoke)[^:]*(?:\([^)]*\))?: (.*)")


def group(job: Job, stopped: threading.Event) -> None:
    """kcat shows what happens to its group on standard error, and leaves on SIGTERM."""
    command = [KCAT, "-u", "-J", "-b", job["bootstrap"], "-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=200"]
    command += ["-X", f"session.timeout.ms={job['session_ms']}"]
    command += ["-X", f"partition.assignment.strategy={'range' if job['protocol'] == 'range' else 'cooperative-sticky'}"]
    if "instance" in job:
        command += ["-X", f"group.instance.id={job['instance']}"]
    process = subprocess.Popen([*command, "-G", job["group"], job["topic"]], stdout=-1, stderr=-1, text=True)
    assert process.stdout is not None and process.stderr is not None
    errors: Any = process.stderr

    def listen() -> None:
        for line in errors:
            if found := _MOVED.match(line):
                partitions = [int(it) for it in re.findall(r"\[(\d+)\]", found[2])]
                tell("assigned" if found[1] == "assign" else "revoked", partitions=partitions)

    def end() -> None:
        stopped.wait()
        process.terminate()

    for target in (listen, end):
        threading.Thread(target=target, daemon=True).start()
    for line in process.stdout:
        show(line)
    process.wait(30)


class Steps:
    def __init__(self, job: Job) -> None:
        self.bootstrap = job["bootstrap"]

    def list_offset(self, step: Job) -> int:
        at = {"earliest": -2, "latest": -1}.get(step["at"], step["at"])
        command = [KCAT, "-Q", "-b", self.bootstrap, "-t", f"{step['topic']}:{step['partition']}:{at}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        return int(done.stdout.rsplit(" ", 1)[1])


def admin(job: Job, _stopped: threading.Event) -> None:
    administer(job["steps"], Steps(job))


if __name__ == "__main__":
    main(produce=produce, session=session, read=read, group=group, admin=admin)
