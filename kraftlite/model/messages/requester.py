"""The client on whose behalf a broker asks the controller. A call that a node makes for itself carries none.

Source: KIP-590; SE-39.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraftlite.model.principal import Principal, Requester


@dataclass(frozen=True, slots=True, kw_only=True)
class RequesterInfo:
    """`Requester` as it travels between nodes. Only a node may say it: who may be one is decided where nodes connect."""

    kind: str
    name: str
    token_authenticated: bool
    host: str
    client_id: str | None

    @classmethod
    def of(cls, requester: Requester) -> RequesterInfo:
        principal = requester.principal
        return cls(
            kind=principal.kind,
            name=principal.name,
            token_authenticated=principal.token_authenticated,
            host=requester.host,
            client_id=requester.client_id,
        )

    def requester(self) -> Requester:
        return Requester(Principal(self.kind, self.name, self.token_authenticated), self.host, self.client_id)
