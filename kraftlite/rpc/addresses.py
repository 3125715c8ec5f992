"""The addresses of a server: resolving one, holding it before it is served, and why it cannot be had."""

from __future__ import annotations

import asyncio
import errno
import socket

from kraftlite.model.ids import Endpoint


async def resolve(listen: Endpoint) -> Endpoint:
    """One numeric address: given a name of two, gRPC binds what it can and keeps quiet about the other being taken. OSError."""
    if listen.host in ("", "0.0.0.0"):
        return Endpoint("0.0.0.0", listen.port)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise OSError(errno.EADDRNOTAVAIL, f"cannot listen on {listen}: {error.strerror}") from error
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return Endpoint(str(found[0][4][0]), listen.port)


def hold(address: Endpoint) -> socket.socket:
    """A socket that has the address and does not listen: whoever connects is refused, and nobody else can listen there. Raises
    OSError. Close it just before the server takes its place."""
    found = socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((address.host, address.port))
    except OSError:
        found.close()
        raise
    return found


def why_not(address: Endpoint) -> int:
    """Return the error for which the address could not be bound. gRPC does not say it; the kernel does."""
    try:
        with hold(address) as probe:
            probe.listen()
    except OSError as error:
        return error.errno or errno.EADDRINUSE
    return errno.EADDRINUSE
