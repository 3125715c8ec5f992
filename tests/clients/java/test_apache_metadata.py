"""The metadata log and the snapshots of an Apache Kafka controller: read by us, as Apache Kafka reads them itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kraftlite.cli.dump import dump
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.records import AccessControlEntryRecord, ClientQuotaRecord, RemoveTopicRecord
from kraftlite.model.ids import NodeId
from kraftlite.postmortem.reading import read_metadata_log
from tests.clients.java import tools
from tests.clients.java.apache import ApacheKafka, apache_kafka
from tests.clients.java.test_metadata_records import comparable, dumped, ours, theirs
from tests.harness.controller_world import World
from tests.harness.local import wait_for
from tests.harness.metadata_files import RawBatch, image_of_batches, raw_batches

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("clients")]
SECURITY = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "metadata.log.max.record.bytes.between.snapshots": "1500",
}


@dataclass(frozen=True, slots=True)
class Left:
    """What a killed node has left, and what it had said."""

    folder: Path
    topics: dict[str, dict[int, tuple[int, tuple[int, ...]]]]
    """By name: leader and replicas of each partition."""

    @property
    def logs(self) -> list[Path]:
        return sorted(self.folder.glob("*.log"))

    @property
    def snapshots(self) -> list[Path]:
        return sorted(it for it in self.folder.glob("*.checkpoint") if not it.name.startswith("0" * 20))


def tool(kafka: ApacheKafka, name: str, *args: str) -> None:
    done = tools.kafka_tool(name, "--bootstrap-server", kafka.bootstrap_servers, *args)
    assert done.code == 0, f"{name} {args}: {done.out}{done.err}"


def use(kafka: ApacheKafka) -> dict[str, dict[int, tuple[int, tuple[int, ...]]]]:
    from confluent_kafka.admin import (
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewTopic,
        ResourcePatternType,
        ResourceType,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})

    def done(futures: dict[Any, Any]) -> None:
        for future in futures.values():
            future.result(60)

    def entry(name: str, principal: str = "User:alice") -> AclBinding:
        operation, permission = AclOperation.READ, AclPermissionType.ALLOW
        return AclBinding(ResourceType.TOPIC, name, ResourcePatternType.PREFIXED, principal, "*", operation, permission)

    done(admin.create_topics([NewTopic("kept", 3, 1, config={"retention.ms": "1000"}), NewTopic("gone", 2, 1)]))
    done(admin.create_acls([entry("k"), entry("gone")]))
    done(admin.create_topics([NewTopic(f"more-{number}", 4, 1) for number in range(20)]))
    resource = ConfigResource(
        ConfigResource.Type.TOPIC,
        "kept",
        incremental_configs=[ConfigEntry("segment.ms", "60000", incremental_operation=AlterConfigOpType.SET)],
    )
    done(admin.incremental_alter_configs([resource]))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    for user in ("alice", "bob"):
        done(admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, info, b"secret")]))
    done(admin.alter_user_scram_credentials([UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512)]))
    any_of = (ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)
    done(admin.delete_acls([AclBindingFilter(ResourceType.TOPIC, "gone", *any_of)]))
    done(admin.delete_topics(["gone"]))
    tool(kafka, "kafka-configs", "--alter", "--add-config", "request_percentage=12.5", "--entity-type", "users",
         "--entity-name", "alice", "--entity-type", "clients", "--entity-default")  # fmt: skip
    tool(kafka, "kafka-features", "downgrade", "--feature", "eligible.leader.replicas.version=0")
    wait_for("the broker to know of the deletion", lambda: "gone" not in admin.list_topics(timeout=60).topics)
    found = admin.list_topics(timeout=60).topics
    return {name: {p.id: (p.leader, tuple(p.replicas)) for p in topic.partitions.values()} for name, topic in found.items()}


@pytest.fixture(scope="module")
def left(java: None) -> Iterator[Left]:
    with apache_kafka(config=SECURITY) as kafka:
        topics = use(kafka)
        found = Left(kafka.data_dir(1) / "__cluster_metadata-0", topics)
        wait_for("a snapshot", lambda: bool(found.snapshots))
        kafka.kill(1)
        yield found


def whole_log(left: Left) -> list[RawBatch]:
    return list(raw_batches(*left.logs))


def from_snapshot(left: Left) -> list[RawBatch]:
    """The last snapshot, and the log behind it."""
    newest = left.snapshots[-1]
    end = int(newest.stem.partition("-")[0])
    return [*raw_batches(newest), *(batch for batch in whole_log(left) if batch.base_offset >= end)]


@pytest.mark.parametrize("read", [whole_log, from_snapshot])
def test_our_image_is_that_of_apache_kafka(left: Left, read: Any) -> None:
    batches = read(left)
    image = image_of_batches(batches)
    assert comparable(ours(image)) == comparable(theirs(batches))
    check_what_was_done(image, left)


def check_what_was_done(image: MetadataImage, left: Left) -> None:
    shown = {topic.name: {index: (it.leader, it.replicas) for index, it in topic.partitions.items()} for topic in image.topics}
    assert shown == left.topics
    assert dict(image.configs.get(2, "kept")) == {"retention.ms": "1000", "segment.ms": "60000"}
    assert [it.resource_name for it in image.acls.entries.values()] == ["k"]
    assert list(image.scram.credentials) == [("alice", 2)]
    ((entity, values),) = image.client_quotas.entities.items()
    assert {part.type: part.name for part in entity} == {"user": "alice", "client-id": None}
    assert dict(values) == {"request_percentage": "12.5"}
    assert image.features.metadata_version == 30 and image.features.level("eligible.leader.replicas.version") == 0
    broker = image.cluster.broker(NodeId(1))
    assert broker is not None and not broker.fenced and [it.security_protocol for it in broker.listeners] == ["PLAINTEXT"]
    assert NodeId(1) in image.cluster.controllers


def test_log_dump_prints_what_kafka_dump_log_does(left: Left) -> None:
    files = [*left.logs, *left.snapshots]
    done = CliRunner().invoke(dump, ["-o", "json", *map(str, files)])
    assert done.exit_code == 0, done.output[-2000:]
    lines = [json.loads(line) for line in done.output.splitlines()]
    mine = [line["payload"] for line in lines if "payload" in line]
    assert mine == dumped(*files)
    assert {"ACCESS_CONTROL_ENTRY_RECORD", "REMOVE_ACCESS_CONTROL_ENTRY_RECORD", "BEGIN_TRANSACTION_RECORD"} <= {
        it["type"] for it in mine
    }


def test_a_report_reads_the_records_in_the_order_of_the_log(left: Left) -> None:
    entries = list(read_metadata_log(left.folder))
    kinds = {type(entry.record) for entry in entries}
    assert {AccessControlEntryRecord, ClientQuotaRecord, RemoveTopicRecord} <= kinds
    assert [entry.offset for entry in entries] == sorted(entry.offset for entry in entries)


def test_no_controller_of_ours_runs_on_access_control_entries_that_it_would_not_enforce(left: Left) -> None:
    (entry, *_) = [it.record for it in read_metadata_log(left.folder) if isinstance(it.record, AccessControlEntryRecord)]
    with pytest.raises(ValueError, match="no authorizer to enforce them"):
        World().active.core.state.replay(entry, 10)
