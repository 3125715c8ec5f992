"""Addresses of client listeners."""

from __future__ import annotations

import os
import socket


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that has the address and does not listen yet: who connects is refused, and nobody else can listen there. Empty
    host: every address, IPv6 included where the machine has it. Raises OSError naming the address."""
    family, address = socket.AF_INET, (host, port)
    if host:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        family, address = found[0], (str(found[4][0]), port)
    elif socket.has_dualstack_ipv6():
        family = socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if host else 0)
        sock.bind(address)
    except OSError as error:
        sock.close()
        number = error.errno or 0
        raise OSError(number, f"cannot listen on {host or '*'}:{port}: {os.strerror(number)}") from None
    return sock
