"""Sends a step to a port that is not the clients': a gRPC call, or bytes."""

from __future__ import annotations

import contextlib
import socket
from typing import Any, Final

from tests.fuzz.targets import Target

import kraftlite.rpc.options  # noqa: F401  # isort: skip  # quiets gRPC
import grpc  # isort: skip

CALL_S: Final = 0.4
"""A long poll may wait longer for all we know; what is done about the request is done by then, or seen at the good client."""
_CONTROLLER: Final = ("Raft", "Controller")


def elsewhere(target: Target, to: str, data: bytes) -> bool:
    """True: the node has closed, or refused. What it says is not looked at: only what it does afterwards matters."""
    if to.startswith("/"):
        return _call(target, to, data)
    address = target.metrics if to == "metrics" else target.grpc[int(to[-1])]
    assert address is not None, f"this node has no port {to}"
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=CALL_S) as sock:
        sock.sendall(data)
        sock.settimeout(0.05)
        while sock.recv(1 << 16):
            pass
    return False


def _call(target: Target, path: str, data: bytes) -> bool:
    service = path.split("/")[1].rpartition(".")[2]
    host, port = target.grpc[1 if service in _CONTROLLER else 0]
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", 256 << 20))
    with grpc.insecure_channel(f"{host}:{port}", options) as channel:
        try:
            if path.endswith("/Fetch"):
                _streamed(channel, path, data)
            else:
                channel.unary_unary(path)(data, timeout=CALL_S)
        except grpc.RpcError as error:
            status: Any = error
            return bool(status.code() is grpc.StatusCode.UNAVAILABLE)
    return False


def _streamed(channel: Any, path: str, data: bytes) -> None:
    """One frame, and the first that comes back."""
    answers = channel.stream_stream(path)(iter((data,)), timeout=CALL_S)
    for _answer in answers:
        break
    answers.cancel()
