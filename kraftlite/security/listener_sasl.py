"""The SASL of one listener, as its configuration says. Source: SE-10 to SE-15."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kraftlite.model.limits import MIB
from kraftlite.security.oauthbearer import UnsecuredRules
from kraftlite.security.signed_tokens import SignedRules


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSasl:
    """`mechanisms` are those that are enabled, in their configured order. `max_reauth_ms`: by mechanism, how long a session lasts
    at most; 0: as long as its connection."""

    mechanisms: tuple[str, ...]
    plain_users: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)
    oauth: UnsecuredRules | SignedRules | None = None
    """None: OAUTHBEARER is not enabled."""
    failure_delay_ms: int = 100
    max_receive_bytes: int = 524_288
    most_unauthenticated: int = 1_024
    """Connections that have not proved who they are; beyond them the oldest is cut, so that one who is quick gets in."""
    unauthenticated_bytes: int = 8 * MIB
    """The memory that all their larger messages together may have."""
