"""Client quotas as records, checked when they are set. Source: KIP-546, KIP-612; CM-61.

Departs: an ip entity must be an address; Kafka also takes host names, which it resolves.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Final

from kraftlite.controller.results import BoundedRecords, ControllerResult
from kraftlite.controller.turns import Steps
from kraftlite.metadata.image import QuotaEntity
from kraftlite.metadata.records import ClientQuotaRecord, MetadataRecord
from kraftlite.model.configdef import ConfigType
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_INT32, MAX_INT64
from kraftlite.model.messages.security import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResult,
    QuotaAlteration,
)
from kraftlite.timeline.collections import TimelineMap
from kraftlite.timeline.registry import TimelineRegistry

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

_CLIENT_KEYS: Final[Mapping[str, ConfigType]] = {
    "producer_byte_rate": ConfigType.LONG,
    "consumer_byte_rate": ConfigType.LONG,
    "request_percentage": ConfigType.DOUBLE,
    "controller_mutation_rate": ConfigType.DOUBLE,
}
_IP_KEYS: Final[Mapping[str, ConfigType]] = {"connection_creation_rate": ConfigType.INT}
_WHOLE: Final = Decimal("1e-6")
"""So little beyond a whole number is taken for what a double makes of it."""
_LARGEST: Final = {ConfigType.LONG: MAX_INT64, ConfigType.INT: MAX_INT32}


class QuotaControl:
    """The quotas of each entity, as an immutable mapping that a change replaces."""

    def __init__(self, registry: TimelineRegistry) -> None:
        self.quotas: TimelineMap[QuotaEntity, Mapping[str, str]] = TimelineMap(registry)

    def alter(self, request: AlterClientQuotasRequest) -> Steps[ControllerResult[AlterClientQuotasResponse]]:
        """Each entity by itself; a bad key leaves its entity unchanged."""
        records = BoundedRecords()
        results = []
        seen: set[QuotaEntity] = set()
        for entry in request.entries:
            yield
            error: ApiError | None = None
            entity = tuple(sorted(entry.entity))
            try:
                if entity in seen:
                    raise _invalid(f"Ignoring duplicate entity {_shown(entity)}")
                seen.add(entity)
                records.extend(self._changes(entity, entry))
            except ApiError as refused:
                error = refused
            results.append(
                AlterClientQuotasResult(
                    entity=entry.entity,
                    error=ErrorCode.NONE if error is None else error.code,
                    message=None if error is None else error.message,
                )
            )
        response = AlterClientQuotasResponse(entries=tuple(results))
        found = ControllerResult(records=list(records), response=response, atomic=True)
        return found.without_records() if request.validate_only else found

    def _changes(self, entity: QuotaEntity, entry: QuotaAlteration) -> list[MetadataRecord]:
        keys = _keys_of(entity)
        current = self.quotas.get(entity) or {}
        records: list[MetadataRecord] = []
        seen: set[str] = set()
        for op in entry.ops:
            if op.key in seen:
                raise _invalid(f"Duplicate quota key {op.key} not updating quota for this entity {_shown(entity)}")
            seen.add(op.key)
            value = op.value
            if value is not None:
                _check_value(keys, op.key, value)
                value = repr(float(value))
            if value != current.get(op.key):
                records.append(ClientQuotaRecord(entity=entity, key=op.key, value=value))
        return records

    def replay(self, record: ClientQuotaRecord) -> None:
        values = dict(self.quotas.get(record.entity) or {})
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if values:
            self.quotas[record.entity] = values
        else:
            self.quotas.pop(record.entity)


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _shown(entity: QuotaEntity) -> str:
    return ", ".join(f"{part.type}={'<default>' if part.name is None else part.name}" for part in entity)


def _keys_of(entity: QuotaEntity) -> Mapping[str, ConfigType]:
    """The keys that this kind of entity can have. Raises ApiError(INVALID_REQUEST) for one that there is not."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    types = [part.type for part in entity]
    for part in entity:
        if part.type not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {part.type}")
        if part.name == "":
            raise _invalid(f"Empty {part.type} not supported")
        if types.count(part.type) > 1:
            raise _invalid(f"Entity type {part.type} is named twice")
    if IP not in types:
        return _CLIENT_KEYS
    if len(types) > 1:
        raise _invalid("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
    name = entity[0].name
    if name is not None:
        try:
            ipaddress.ip_address(name)
        except ValueError:
            raise _invalid(f"{name} is not a valid IP or resolvable host.") from None
    return _IP_KEYS


def _check_value(keys: Mapping[str, ConfigType], key: str, text: str) -> None:
    kind = keys.get(key)
    if kind is None:
        raise _invalid(f"Invalid configuration key {key}")
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise _invalid(f"Quota {key} is not a number: {text}") from None
    if value.is_nan() or value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if kind is ConfigType.DOUBLE:
        return
    if float(text) > float(_LARGEST[kind]):
        raise _invalid(f"Proposed value for {key} is too large for {'a LONG' if kind is ConfigType.LONG else 'an INT'}.")
    if value % 1 > _WHOLE:
        raise _invalid(f"{key} cannot be a fractional value.")
