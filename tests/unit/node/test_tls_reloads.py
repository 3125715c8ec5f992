"""Certificates that are replaced while others are being read: what was asked for last is in force in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kraftlite.model.messages.controller import ListenerInfo
from kraftlite.node.tls import NodeTls
from kraftlite.tls.settings import ClientAuth, read_settings
from kraftlite.tls.source import TlsSource
from tests.harness.broker_ports import LoopTasks, TestBed
from tests.harness.certificates import Authority, Stores

CA = Authority()
KEY = "listener.name.clients.ssl.client.auth"


class Threads(LoopTasks):
    """Work off the loop ends when the test says so, in any order."""

    def __init__(self) -> None:
        super().__init__(lambda error, where: pytest.fail(f"{where}: {error!r}"))
        self.gates: list[asyncio.Event] = []

    async def run_blocking(self, function: Callable[[], Any]) -> Any:
        gate = asyncio.Event()
        self.gates.append(gate)
        await gate.wait()
        return function()

    async def end_the_latest_first(self) -> None:
        """Until nothing is left to end."""
        await asyncio.sleep(0.01)
        while waiting := [gate for gate in self.gates if not gate.is_set()]:
            waiting[-1].set()
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("asked", [("required", "requested"), ("required", "none")], ids=["twice", "and taken back"])
async def test_se_05_of_two_changes_the_later_one_is_in_force(tmp_path: Path, asked: tuple[str, str]) -> None:
    threads, bed = Threads(), TestBed()
    files = Stores(tmp_path).write(CA.issue("node"), CA).as_kafka()
    given = {f"listener.name.clients.{key}": value for key, value in files.items()}
    source = TlsSource.of(read_settings(files.get, lambda key: f"listener.name.clients.{key}", []))
    config: Any = SimpleNamespace(
        listeners=(), controller_listener=None, tls={}, inter_broker_listener_name=None, inter_broker_named=None
    )
    tls = NodeTls(replace(bed.ports, tasks=threads), cast(Any, config))
    tls.use(ListenerInfo(name="CLIENTS", host="h", port=1, security_protocol="SSL"), source)
    before = source.settings
    tls.update({**given, KEY: "none"})
    await threads.end_the_latest_first()
    assert source.settings == before, "nothing has changed so far"
    for auth in asked:
        tls.update({**given, KEY: auth})
    await threads.end_the_latest_first()
    assert source.settings.client_auth is ClientAuth(asked[-1])
    await threads.cancel_all()
