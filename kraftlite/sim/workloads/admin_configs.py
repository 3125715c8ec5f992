"""The simulated administrator's requests about configs, features, quotas and credentials: drawn here, sent elsewhere."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from kraftlite.model.messages import controller as m
from kraftlite.model.messages import security as s
from kraftlite.sim.workloads import admin_values as values
from kraftlite.sim.workloads.admin_topics import NAMES, NOBODY, Drawn, Sight, timeout_ms

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
NO_TYPE: Final = 77
_OPS: Final = (0, 0, 0, 0, 1, 1, 2, 3)


def _resource(rng: random.Random, sight: Sight) -> tuple[int, str, Mapping[str, values.Values]]:
    at = rng.randrange(20)
    if at < 7:
        return TOPIC, rng.choice(NAMES), values.OF_TOPICS
    if at < 10:
        return TOPIC, rng.choice(sight.shape).name if sight.shape else NAMES[0], values.HARMLESS
    if at < 12:
        return BROKER, "", values.OF_BROKERS
    if at < 15:
        return BROKER, str(rng.choice(sight.brokers)), values.OF_BROKERS
    if at == 15:
        return GROUP, rng.choice(("zg1", "zg2", "")), values.OF_GROUPS
    if at == 16:
        return METRICS, rng.choice(("zm1", "zm2", "")), values.OF_CLIENT_METRICS
    kind, name = rng.choice(
        ((TOPIC, ""), (TOPIC, "never-there"), (BROKER, str(NOBODY)), (BROKER, "x"), (LOGGER, "1"), (NO_TYPE, "z"))
    )
    return kind, name, values.OF_TOPICS if kind == TOPIC else values.OF_BROKERS


def _change(rng: random.Random, kind: int, keys: Mapping[str, values.Values]) -> m.ConfigChange:
    key = rng.choice(sorted(keys))
    known = keys[key]
    op = rng.choice(_OPS)
    if known.items and rng.randrange(2):
        return m.ConfigChange(name=key, op=rng.choice((2, 3)), value=rng.choice(known.items))
    odd = rng.randrange(16)
    if odd == 0:
        op = rng.choice((9, -1))
    elif odd == 1:
        return m.ConfigChange(name=key, op=0, value=None)
    elif odd == 2:
        return m.ConfigChange(name=values.UNKNOWN_KEY, op=0, value="1")
    elif odd == 3 and kind == BROKER:
        return m.ConfigChange(name=rng.choice(values.READ_ONLY), op=0, value="5")
    value = rng.choice(known.bad) if rng.randrange(8) == 0 else rng.choice(known.good)
    return m.ConfigChange(name=key, op=op, value=None if op == 1 else value)


def alter(rng: random.Random, sight: Sight) -> Drawn:
    resources = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind, name, keys = _resource(rng, sight)
        changes = tuple(_change(rng, kind, keys) for _ in range(rng.choice((1, 1, 2, 3))))
        resources.append(m.ConfigResourceChange(resource_type=kind, resource_name=name, changes=changes))
    return "alter_configs", m.IncrementalAlterConfigsRequest(
        resources=tuple(resources), validate_only=rng.randrange(6) == 0, timeout_ms=timeout_ms(rng)
    )


def replace(rng: random.Random, sight: Sight) -> Drawn:
    """The older call, which replaces a whole set: never the set of a topic that other clients use."""
    resources = []
    for _ in range(rng.choice((1, 1, 2))):
        kind, name, keys = _resource(rng, sight)
        if sight.plan(name) is not None and kind == TOPIC:
            name = NAMES[0]
        pairs = []
        for key in rng.sample(sorted(keys), min(len(keys), rng.choice((0, 1, 2)))):
            bad = rng.randrange(8) == 0
            pairs.append(m.ConfigPair(name=key, value=rng.choice((*keys[key].bad, None) if bad else keys[key].good)))
        resources.append(m.LegacyConfigResource(resource_type=kind, resource_name=name, configs=tuple(pairs)))
    return "alter_configs", m.AlterConfigsRequest(
        resources=tuple(resources), validate_only=rng.randrange(6) == 0, timeout_ms=timeout_ms(rng)
    )


def features(rng: random.Random, sight: Sight) -> Drawn:
    updates = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        name = rng.choice(("metadata.version", "metadata.version", "group.version", "kraft.version", "no.such.feature"))
        level = {
            "metadata.version": rng.choice((30, 30, 29, 28, 25, 24, 22, 7, 6, 31, 0, -1)),
            "group.version": rng.choice((1, 1, 0, 2)),
        }.get(name, rng.choice((0, 1)))
        if name == "kraft.version":
            level *= 2  # 1 would be taken, for good: not the work of this workload
        updates.append(m.FeatureUpdate(name=name, level=level, upgrade_type=rng.choice((1, 1, 1, 2, 3, 0, 4))))
    closes_groups = any(it.name == "group.version" and it.level == 0 for it in updates)  # others may be in groups
    return "update_features", m.UpdateFeaturesRequest(
        updates=tuple(updates), validate_only=closes_groups or rng.randrange(4) == 0, timeout_ms=timeout_ms(rng)
    )


def quotas(rng: random.Random, sight: Sight) -> Drawn:
    entries = tuple(_alteration(rng) for _ in range(rng.choice((1, 1, 2))))
    return "alter_quotas", s.AlterClientQuotasRequest(
        entries=entries, validate_only=rng.randrange(6) == 0, timeout_ms=timeout_ms(rng)
    )


def _alteration(rng: random.Random) -> s.QuotaAlteration:
    user, client, address = rng.choice(("u1", "u2", None)), rng.choice(("c1", None)), rng.choice(("10.0.0.1", "::1", None))
    parts = rng.choice(
        (
            (("user", user),),
            (("client-id", client),),
            (("user", user), ("client-id", client)),
            (("client-id", client), ("user", user)),
            (("ip", address),),
            rng.choice(((("ip", "nowhere at all"),), (("ip", address), ("user", user)), (("tribe", "t"),), (), (("user", ""),))),
        )
    )
    entity = tuple(s.QuotaEntityPart(type=kind, name=name) for kind, name in parts)
    good = ("connection_creation_rate",) if entity and entity[0].type == "ip" else ("producer_byte_rate", "request_percentage")
    ops = []
    for _ in range(rng.choice((1, 1, 2))):
        key = rng.choice(good) if rng.randrange(8) else rng.choice(("producer_byte_rate", "connection_creation_rate", "speed"))
        value = (
            rng.choice(("1000.0", "2000.0", "1000.0", None)) if rng.randrange(8) else rng.choice(("0.0", "-1.0", "1.5", "nan"))
        )
        ops.append(s.QuotaOp(key=key, value=value))
    return s.QuotaAlteration(entity=entity, ops=tuple(ops))


def credentials(rng: random.Random, sight: Sight) -> Drawn:
    def user() -> str:
        return rng.choice(("u1", "u1", "u2", "u3")) if rng.randrange(12) else ""

    def mechanism() -> int:
        return rng.choice((1, 2)) if rng.randrange(12) else rng.choice((0, 3))

    deletions = tuple(s.ScramDeletion(name=user(), mechanism=mechanism()) for _ in range(rng.choice((0, 1, 1))))
    upsertions = tuple(
        s.ScramUpsertion(
            name=user(),
            mechanism=mechanism(),
            iterations=rng.choice((4096, 8192, 16384)) if rng.randrange(8) else rng.choice((4095, 16385, 0)),
            salt=rng.randbytes(4),
            salted_password=rng.randbytes(4),
        )
        for _ in range(rng.choice((0, 1, 1, 2)))
    )
    return "alter_scram", s.AlterUserScramCredentialsRequest(
        deletions=deletions, upsertions=upsertions, timeout_ms=timeout_ms(rng)
    )


CONFIG_DRAWS: Final[tuple[Callable[[random.Random, Sight], Drawn], ...]] = (
    *(alter, alter, alter, replace, features, quotas, credentials),
)
