"""The messages between nodes: frozen dataclasses, one module per service. `rpc/codec` maps them to protobuf by field name.

Rules that the codec relies on: fields are int, bool, str, bytes, UUID, an IntEnum, a nested message dataclass, a tuple of
those, or any of these `| None`; a field named `payload: bytes` travels raw behind the protobuf head. An expected refusal of
the whole request is an `ApiError` raised by the handler, not a field, except in the raft service, whose errors carry hints.
"""
