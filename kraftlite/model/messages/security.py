"""Messages of the controller service about clients: their quotas and credentials. Source: KIP-546, KIP-554; CM-59, CM-61."""

from __future__ import annotations

from dataclasses import dataclass

from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages.requester import RequesterInfo

# --- client quotas ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEntityPart:
    """`type`: user, client-id or ip. `name` None: the default of that type, which sorts before all names."""

    type: str
    name: str | None

    def __lt__(self, other: QuotaEntityPart) -> bool:
        return (self.type, self.name is not None, self.name or "") < (other.type, other.name is not None, other.name or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaOp:
    """`value` None removes the key; otherwise it is the shortest decimal text of a double."""

    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaAlteration:
    entity: tuple[QuotaEntityPart, ...]
    ops: tuple[QuotaOp, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotasRequest:
    entries: tuple[QuotaAlteration, ...]
    validate_only: bool
    timeout_ms: int
    requester: RequesterInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotasResult:
    entity: tuple[QuotaEntityPart, ...]
    error: ErrorCode
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotasResponse:
    entries: tuple[AlterClientQuotasResult, ...]


# --- SCRAM credentials ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramDeletion:
    name: str
    mechanism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUpsertion:
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterUserScramCredentialsRequest:
    deletions: tuple[ScramDeletion, ...]
    upsertions: tuple[ScramUpsertion, ...]
    timeout_ms: int
    requester: RequesterInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramResult:
    user: str
    error: ErrorCode
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterUserScramCredentialsResponse:
    results: tuple[ScramResult, ...]
