"""CM-47, CM-48, CM-50 to CM-55: configs, features, producer ids."""

from __future__ import annotations

import pytest

from kraftlite.metadata.features import METADATA_VERSION
from kraftlite.metadata.records import FeatureLevelRecord
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages import controller as m
from tests.harness.controller_world import World
from tests.spec.controller.test_brokers import register_controller

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture
def world() -> World:
    world = World()
    world.start_brokers(1)
    world.create("t")
    return world


def change(world: World, kind: int, name: str, *changes: tuple[str, int, str | None]) -> ErrorCode:
    code: ErrorCode = world.set_config(kind, name, *changes).value.resources[0].error
    return code


def configs(world: World, kind: int = TOPIC, name: str = "t") -> dict[str, str]:
    return dict(world.state.configs.get((kind, name)))


def test_cm_47_operations(world: World) -> None:
    assert change(world, TOPIC, "t", ("retention.ms", SET, "5"), ("segment.bytes", SET, "1048576")) is ErrorCode.NONE
    assert change(world, TOPIC, "t", ("retention.ms", DELETE, None)) is ErrorCode.NONE
    assert configs(world) == {"segment.bytes": "1048576"}
    assert change(world, TOPIC, "t", ("cleanup.policy", APPEND, "compact,delete")) is ErrorCode.NONE
    assert configs(world)["cleanup.policy"] == "delete,compact", "starts from the default, adds what is new"
    assert change(world, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) is ErrorCode.NONE
    assert configs(world)["cleanup.policy"] == "compact"
    for op in (APPEND, SUBTRACT):
        assert change(world, TOPIC, "t", ("retention.ms", op, "5")) is ErrorCode.INVALID_CONFIG
    assert change(world, TOPIC, "t", ("retention.ms", 9, "5")) is ErrorCode.INVALID_REQUEST
    assert change(world, TOPIC, "t", ("retention.ms", SET, None)) is ErrorCode.INVALID_REQUEST


def test_cm_47_appending_begins_with_the_key_s_own_default_whatever_the_brokers_have() -> None:
    """Kafka's ConfigurationControlManager.getParts asks KafkaConfigSchema.getDefault, which knows no broker's value."""
    world = World(static_broker_configs={"log.cleanup.policy": "compact"})
    world.start_brokers(1)
    world.create("t")
    assert change(world, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) is ErrorCode.NONE
    assert configs(world) == {"cleanup.policy": "delete,compact"}


def test_cm_47_what_a_topic_sets_is_judged_beside_what_the_brokers_have() -> None:
    """Kafka's LogConfig.validate puts a topic's configs over KafkaConfig.extractLogConfigMap before it compares the two lags."""
    world = World(static_broker_configs={"log.cleaner.min.compaction.lag.ms": "1000"})
    world.start_brokers(1)
    world.create("t")
    assert change(world, TOPIC, "t", ("max.compaction.lag.ms", SET, "500")) is ErrorCode.INVALID_CONFIG
    assert world.create("u", configs={"max.compaction.lag.ms": "500"}).error is ErrorCode.INVALID_CONFIG
    both = (("max.compaction.lag.ms", SET, "500"), ("min.compaction.lag.ms", SET, "400"))
    assert change(world, TOPIC, "t", *both) is ErrorCode.NONE


def test_cm_48_a_name_that_no_topic_can_have_is_refused_as_such(world: World) -> None:
    """Kafka's ControllerConfigurationValidator.validateTopicName, before the values and before whether there is the topic."""
    assert change(world, TOPIC, "a b", ("retention.ms", SET, "5")) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert change(world, TOPIC, "a b", ("no.such.key", SET, "5")) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("broker", ["", "1"])
@pytest.mark.parametrize("key", ["log.dirs", "node.id", "cordoned.log.dirs", "listeners", "no.such.key", "log.retention.ms"])
def test_cm_47_what_is_not_set_may_be_taken_back(world: World, broker: str, key: str) -> None:
    """As in Kafka, which looks at what is left: also a key that cannot be set while a broker runs, or for all of them."""
    assert change(world, BROKER, broker, (key, DELETE, None)) is ErrorCode.NONE
    assert configs(world, BROKER, broker) == {}


def test_cm_47_a_value_that_is_missing_comes_before_what_is_wrong_with_others(world: World) -> None:
    assert change(world, TOPIC, "t", ("retention.ms", APPEND, "5"), ("segment.ms", SET, None)) is ErrorCode.INVALID_REQUEST


def test_cm_47_a_bad_key_stops_its_resource_only(world: World) -> None:
    world.create("u")
    request = m.IncrementalAlterConfigsRequest(
        resources=tuple(
            m.ConfigResourceChange(
                resource_type=TOPIC,
                resource_name=name,
                changes=tuple(m.ConfigChange(name=key, op=SET, value=value) for key, value in pairs),
            )
            for name, pairs in (
                ("t", [("retention.ms", "5"), ("retention.bytes", "lots")]),
                ("u", [("retention.ms", "6")]),
            )
        ),
        validate_only=False,
        timeout_ms=1_000,
    )
    answer = world.submit("alter", lambda _now: world.state.configs.incremental_alter(request))
    assert [r.error for r in answer.value.resources] == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]
    assert configs(world) == {}
    assert configs(world, TOPIC, "u") == {"retention.ms": "6"}


def test_cm_47_a_list_that_grows_beyond_what_a_record_holds_stops_its_resource_only(world: World) -> None:
    world.create("u")
    throttled = "leader.replication.throttled.replicas"
    assert change(world, TOPIC, "t", (throttled, APPEND, ",".join(f"{index}:1" for index in range(4000)))) is ErrorCode.NONE
    before = configs(world)
    request = m.IncrementalAlterConfigsRequest(
        resources=tuple(
            m.ConfigResourceChange(
                resource_type=TOPIC, resource_name=name, changes=(m.ConfigChange(name=key, op=op, value=value),)
            )
            for name, key, op, value in (
                ("t", throttled, APPEND, ",".join(f"{index}:2" for index in range(4000))),
                ("u", "retention.ms", SET, "5"),
            )
        ),
        validate_only=False,
        timeout_ms=1000,
    )
    answer = world.submit("test", lambda _now: world.state.configs.incremental_alter(request))
    world.settle()
    assert [one.error for one in answer.value.resources] == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]
    assert "maximum value size of 32767 bytes" in (answer.value.resources[0].message or "")
    assert configs(world) == before and configs(world, name="u") == {"retention.ms": "5"}


def test_cm_48_resources(world: World) -> None:
    assert change(world, TOPIC, "no", ("retention.ms", SET, "5")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert change(world, BROKER, "one", ("log.retention.ms", SET, "5")) is ErrorCode.INVALID_REQUEST
    assert change(world, BROKER, "9", ("log.retention.ms", SET, "5")) is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert change(world, BROKER, "1", ("log.retention.ms", SET, "5")) is ErrorCode.NONE
    assert change(world, BROKER, "70", ("log.retention.ms", SET, "5")) is ErrorCode.BROKER_ID_NOT_REGISTERED
    register_controller(world, 70)
    assert change(world, BROKER, "70", ("log.retention.ms", SET, "5")) is ErrorCode.NONE, "a controller has configs, too"
    assert change(world, BROKER, "", ("log.retention.ms", SET, "6")) is ErrorCode.NONE
    assert change(world, 77, "x", ("a", SET, "b")) is ErrorCode.INVALID_REQUEST
    assert configs(world, BROKER, "") == {"log.retention.ms": "6"}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("2147483647", ErrorCode.BROKER_ID_NOT_REGISTERED),
        ("2147483648", ErrorCode.INVALID_REQUEST),
        ("9" * 5_000, ErrorCode.INVALID_REQUEST),
        ("9" * 32_767, ErrorCode.INVALID_REQUEST),
        ("0" * 5_000, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ("0" * 5_000 + "1", ErrorCode.NONE),
        ("-1", ErrorCode.INVALID_REQUEST),
        ("\u0661", ErrorCode.INVALID_REQUEST),
    ],
)
def test_cm_48_a_broker_name_is_the_number_of_a_node(world: World, name: str, code: ErrorCode) -> None:
    """Python refuses to read more than 4,300 digits: as it was, that was no answer of the controller but a failure of it."""
    assert change(world, BROKER, name, ("log.retention.ms", SET, "5")) is code


@pytest.mark.parametrize(
    ("key", "op", "value", "code"),
    [
        ("retention.ms", SET, "x", ErrorCode.INVALID_CONFIG),
        ("no.such.key", SET, "x", ErrorCode.INVALID_CONFIG),
        ("retention.ms", APPEND, "5", ErrorCode.INVALID_CONFIG),
        ("retention.ms", SET, None, ErrorCode.INVALID_REQUEST),
        ("retention.ms", 9, "5", ErrorCode.INVALID_REQUEST),
        ("no.such.key", DELETE, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("cleanup.policy", APPEND, "compact", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_cm_48_what_is_asked_is_checked_before_whom_it_concerns(
    world: World, key: str, op: int, value: str | None, code: ErrorCode
) -> None:
    assert change(world, TOPIC, "no", (key, op, value)) is code
    assert configs(world, TOPIC, "no") == {}


def test_cm_48_a_replacement_is_checked_in_the_same_order(world: World) -> None:
    def replace(value: str | None) -> ErrorCode:
        resource = m.LegacyConfigResource(
            resource_type=TOPIC, resource_name="no", configs=(m.ConfigPair(name="retention.ms", value=value),)
        )
        request = m.AlterConfigsRequest(resources=(resource,), validate_only=False, timeout_ms=1_000)
        answer = world.submit("alter", lambda _now: world.state.configs.legacy_alter(request))
        code: ErrorCode = answer.value.resources[0].error
        return code

    assert replace("x") is ErrorCode.INVALID_CONFIG
    assert replace(None) is ErrorCode.INVALID_REQUEST
    assert replace("5") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["", "1"])
def test_cm_47_a_list_that_a_broker_does_not_have(world: World, name: str) -> None:
    def told(key: str, op: int) -> tuple[ErrorCode, str | None]:
        (found,) = world.set_config(BROKER, name, (key, op, "5")).value.resources
        return found.error, found.message

    assert told("no.such.key", APPEND) == (ErrorCode.INVALID_CONFIG, "Unknown config name: no.such.key")
    for op, word in ((APPEND, "append"), (SUBTRACT, "subtract")):
        words = f"Config value {word} is not allowed for config key: log.retention.ms"
        assert told("log.retention.ms", op) == (ErrorCode.INVALID_CONFIG, words)


def test_cm_50_a_current_value_writes_nothing_except_for_brokers(world: World) -> None:
    change(world, TOPIC, "t", ("retention.ms", SET, "5"))
    change(world, BROKER, "1", ("log.retention.ms", SET, "5"))
    end = world.quorum.leo
    assert change(world, TOPIC, "t", ("retention.ms", SET, "5"), ("segment.ms", DELETE, None)) is ErrorCode.NONE
    assert world.quorum.leo == end
    assert change(world, BROKER, "1", ("log.retention.ms", SET, "5")) is ErrorCode.NONE
    assert world.quorum.leo == end + 1


def test_cm_50_legacy_alter_replaces_the_whole_set(world: World) -> None:
    change(world, TOPIC, "t", ("retention.ms", SET, "5"), ("segment.ms", SET, "7"))
    resource = m.LegacyConfigResource(
        resource_type=TOPIC, resource_name="t", configs=(m.ConfigPair(name="segment.ms", value="8"),)
    )
    request = m.AlterConfigsRequest(resources=(resource,), validate_only=False, timeout_ms=1_000)
    _ = world.submit("alter", lambda _now: world.state.configs.legacy_alter(request)).value
    assert configs(world) == {"segment.ms": "8"}


def test_cm_51_broker_keys_that_cannot_change_are_refused(world: World) -> None:
    assert change(world, BROKER, "1", ("node.id", SET, "5")) is ErrorCode.INVALID_REQUEST
    assert change(world, BROKER, "1", ("log.retention.ms", SET, "soon")) is ErrorCode.INVALID_REQUEST
    from kraftlite.model.broker_configs import BROKER_CONFIGS

    per_broker = [key.name for key in BROKER_CONFIGS.values() if key.dynamic == "per-broker"]
    assert per_broker
    assert change(world, BROKER, "", (per_broker[0], SET, "5")) is ErrorCode.INVALID_REQUEST


def test_cm_51_a_default_of_all_brokers_may_be_a_replication_throttle(world: World) -> None:
    for rate in ("leader.replication.throttled.rate", "follower.replication.throttled.rate"):
        assert change(world, BROKER, "", (rate, SET, "1000")) is ErrorCode.NONE
    assert change(world, BROKER, "", ("replica.alter.log.dirs.io.max.bytes.per.second", SET, "1000")) is ErrorCode.NONE
    assert len(configs(world, BROKER, "")) == 3


def test_cm_52_changed_values_decide_the_next_election(world: World) -> None:
    state = world.state
    assert state.configs.configured_min_isr("t") == 1
    change(world, BROKER, "", ("min.insync.replicas", SET, "3"))
    assert state.configs.configured_min_isr("t") == 3
    change(world, TOPIC, "t", ("min.insync.replicas", SET, "2"))
    assert state.configs.configured_min_isr("t") == 2


def update(world: World, *updates: tuple[str, int, int], validate_only: bool = False) -> ErrorCode:
    request = m.UpdateFeaturesRequest(
        updates=tuple(m.FeatureUpdate(name=name, level=level, upgrade_type=kind) for name, level, kind in updates),
        validate_only=validate_only,
        timeout_ms=1_000,
    )
    code = world.submit("update_features", lambda _now: world.state.features.update(request)).code
    assert code is not None
    return code


UP, SAFE, UNSAFE = 1, 2, 3


def at_level(level: int) -> World:
    return World(bootstrap=(FeatureLevelRecord(name=METADATA_VERSION, level=level),))


@pytest.mark.parametrize(
    ("current", "name", "level", "kind", "code"),
    [
        (20, METADATA_VERSION, 21, UP, ErrorCode.NONE),
        (20, METADATA_VERSION, 31, UP, ErrorCode.INVALID_UPDATE_VERSION),
        (20, METADATA_VERSION, -1, UP, ErrorCode.INVALID_UPDATE_VERSION),
        (20, METADATA_VERSION, 6, UNSAFE, ErrorCode.INVALID_UPDATE_VERSION),
        (20, METADATA_VERSION, 0, UNSAFE, ErrorCode.INVALID_UPDATE_VERSION),
        (20, METADATA_VERSION, 19, UP, ErrorCode.INVALID_UPDATE_VERSION),
        (20, METADATA_VERSION, 19, SAFE, ErrorCode.NONE),
        (20, METADATA_VERSION, 16, SAFE, ErrorCode.INVALID_UPDATE_VERSION),
        (20, METADATA_VERSION, 16, UNSAFE, ErrorCode.INVALID_UPDATE_VERSION),
        (20, METADATA_VERSION, 21, SAFE, ErrorCode.INVALID_UPDATE_VERSION),
        (20, METADATA_VERSION, 21, 0, ErrorCode.INVALID_UPDATE_VERSION),
        (20, "no.such.feature", 1, UP, ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_cm_53_feature_rules(current: int, name: str, level: int, kind: int, code: ErrorCode) -> None:
    world = at_level(current)
    assert update(world, (name, level, kind)) is code
    assert world.state.features.metadata_version == (level if code is ErrorCode.NONE else current)


def test_cm_53_every_broker_must_support_the_level() -> None:
    world = at_level(20)
    narrow = (m.FeatureRange(name=METADATA_VERSION, min_level=7, max_level=20),)
    assert world.register(1, features=narrow).code is ErrorCode.NONE
    assert update(world, (METADATA_VERSION, 21, UP)) is ErrorCode.INVALID_UPDATE_VERSION


def test_cm_53_a_feature_is_named_once() -> None:
    world = at_level(20)
    assert update(world, (METADATA_VERSION, 21, UP), (METADATA_VERSION, 21, UP)) is ErrorCode.INVALID_REQUEST
    assert (
        update(world, ("nope", 1, UP), (METADATA_VERSION, 21, UP), (METADATA_VERSION, 21, UP)) is ErrorCode.INVALID_UPDATE_VERSION
    )
    assert world.state.features.metadata_version == 20


def test_many_updates_are_not_compared_with_each_other() -> None:
    class Name(str):
        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            Name.compared += 1
            return str.__eq__(self, other)

    names = [Name(f"f{number}") for number in range(1_000)]
    assert update(at_level(20), *[(name, 1, UP) for name in names]) is ErrorCode.INVALID_UPDATE_VERSION
    assert Name.compared < 100


def test_cm_53_all_or_nothing_and_dry_run() -> None:
    world = at_level(20)
    end = world.quorum.leo
    assert update(world, (METADATA_VERSION, 21, UP), ("nope", 1, UP)) is ErrorCode.INVALID_UPDATE_VERSION
    assert update(world, (METADATA_VERSION, 21, UP), validate_only=True) is ErrorCode.NONE
    assert world.quorum.leo == end
    assert world.state.features.metadata_version == 20


def test_cm_54_finalized_features_can_be_read_at_the_stable_state() -> None:
    world = at_level(20)
    world.commit_at_once = False
    update_request = (METADATA_VERSION, 21, UP)
    request = m.UpdateFeaturesRequest(
        updates=(m.FeatureUpdate(name=update_request[0], level=21, upgrade_type=UP),), validate_only=False, timeout_ms=1
    )
    world.submit("update", lambda _now: world.state.features.update(request))
    core = world.active.core
    assert dict(core.state.features.finalized.items(core.offsets.read_epoch)) == {METADATA_VERSION: 20}
    world.commit()
    assert dict(core.state.features.finalized.items(core.offsets.read_epoch)) == {METADATA_VERSION: 21}


def test_cm_55_blocks_never_overlap_across_a_failover() -> None:
    world = World(2)
    world.start_brokers(1, 2)

    def allocate(broker: int, epoch: int | None = None):  # type: ignore[no-untyped-def]
        request = m.AllocateProducerIdsRequest(
            broker_id=NodeId(broker), broker_epoch=world.epochs[broker] if epoch is None else epoch
        )
        return world.submit("allocate", lambda _now: world.state.producer_ids.allocate(request))

    blocks = [allocate(1).value, allocate(2).value]
    assert allocate(1, epoch=77).code is ErrorCode.STALE_BROKER_EPOCH
    world.commit_at_once = False
    lost = allocate(1)
    world.quorum.elect(101)
    world.commit_at_once = True
    world.settle()
    assert lost.code is ErrorCode.NOT_CONTROLLER
    blocks.append(allocate(2).value)
    assert [(block.first_producer_id, block.count) for block in blocks] == [(0, 1_000), (1_000, 1_000), (2_000, 1_000)]


def test_cm_51_secrets_do_not_reach_the_trace(world: World) -> None:
    assert change(world, BROKER, "1", ("listener.name.x.ssl.key.password", SET, "hunter2")) in set(ErrorCode)
    assert change(world, BROKER, "1", ("my.plugin.token", SET, "hunter2")) is ErrorCode.NONE
    assert configs(world, BROKER, "1")["my.plugin.token"] == "hunter2"
    assert change(world, TOPIC, "t", ("retention.ms", SET, "55555")) is ErrorCode.NONE
    traced = " ".join(str(event) for event in world.active.tracer.events)
    assert "my.plugin.token" in traced
    assert "55555" in traced
    assert "hunter2" not in traced


@pytest.mark.parametrize(
    ("broker", "key", "value"),
    [
        ("1", "ssl.provider", "x.jks"),
        ("1", "listener.name.client.ssl.engine.factory.class", "x.jks"),
        ("1", "sasl.jaas.config", "x"),
        ("1", "listener.name.client.max.connections.per.ip", "10"),
    ],
)
def test_what_would_protect_and_has_no_effect_is_refused_while_a_node_runs(
    world: World, broker: str, key: str, value: str
) -> None:
    answer = world.set_config(BROKER, broker, (key, SET, value)).value.resources[0]
    assert answer.error is ErrorCode.INVALID_CONFIG
    assert answer.message.startswith(f"{key} would have no effect: ") and "x.jks" not in answer.message
    assert configs(world, BROKER, broker) == {}
    assert change(world, BROKER, broker, (key, DELETE, None)) is ErrorCode.NONE


def test_a_limit_that_is_stored_and_not_applied_is_told(world: World) -> None:
    for rate in ("replica.alter.log.dirs.io.max.bytes.per.second", "follower.replication.throttled.rate"):
        assert change(world, BROKER, "1", (rate, SET, "1000")) is ErrorCode.NONE, "applied"
    assert change(world, BROKER, "1", ("leader.replication.throttled.rate", SET, "1000")) is ErrorCode.NONE, "applied"
    assert change(world, TOPIC, "t", ("preallocate", SET, "true")) is ErrorCode.NONE
    assert change(world, BROKER, "", ("num.io.threads", SET, "9")) is ErrorCode.NONE
    assert change(world, BROKER, "", ("log.retention.ms", SET, "9")) is ErrorCode.NONE, "applied: nothing to tell"
    told = [event for event in world.active.tracer.events if event.event == "controller.setting_not_applied"]
    assert [(event.setting, event.resource, event.level) for event in told] == [
        ("preallocate=true", "topic t", "warning"),
        ("num.io.threads=9", "broker <default>", "warning"),
    ]
