"""The keys of the authorizer, checked together. Source: SE-30, SE-34."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from kraftlite.model.messages.controller import ListenerInfo
from kraftlite.model.shown import shown
from kraftlite.security.authorizer import super_users

STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def authorization_problems(typed: Mapping[str, Any], listeners: Collection[str]) -> Iterator[str]:
    """Say what is wrong with them; nothing when all is well."""
    name, supers = typed.get("authorizer.class.name") or "", typed.get("super.users") or ""
    if name and name != STANDARD:
        yield f"authorizer.class.name={shown(name)}: the only authorizer here is {STANDARD}"
    try:
        super_users(supers)
    except ValueError as error:
        yield f"super.users={shown(supers)}: {error}; several are separated by semicolons"
    for early in typed.get("early.start.listeners") or ():
        if early.upper() not in listeners:
            yield f"early.start.listeners names the listener {shown(early)}, which is not in listeners"
    if name:
        return
    for key in ("super.users", "allow.everyone.if.no.acl.found"):
        if typed.get(key):
            yield f"{key} is set and does nothing without an authorizer: set authorizer.class.name={STANDARD}, or remove it"


def open_to_nodes(typed: Mapping[str, Any], listeners: Collection[ListenerInfo], with_sasl: Collection[str]) -> Iterator[str]:
    """Say where a stranger may act as a node though clients have to prove who they are: gRPC in plain text asks nobody, where
    Kafka asks for a login, or asks the authorizer about User:ANONYMOUS. `with_sasl`: listeners whose clients have to log in."""
    in_plain_text = [it.name for it in listeners if it.security_protocol == "GRPC"]
    if in_plain_text and (typed.get("authorizer.class.name") or not set(with_sasl).isdisjoint(in_plain_text)):
        yield (
            f"listeners for nodes in plain text: {', '.join(in_plain_text)}. Whoever reaches them may act as a node and for any "
            "user, without a login and whatever an authorizer says; give them SSL in listener.security.protocol.map, or keep "
            "others away from these ports"
        )
