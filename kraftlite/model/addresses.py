"""Addresses of clients as they are compared."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def canonical_address(text: str) -> str:
    """The form that a socket tells; an IPv4 address for one that is mapped into IPv6. What is no address stays as it is."""
    try:
        found = ip_address(text)
    except ValueError:
        return text
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(found if mapped is None else mapped)
