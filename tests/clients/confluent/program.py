"""Drives confluent-kafka by the job on standard input (the contract: tests/clients/programs.py): all releases since 1.9."""

from __future__ import annotations

import threading
import time
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import admin as administration
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewPartitions, NewTopic

from tests.clients.program import (
    Job,
    administer,
    keep_sending,
    librdkafka_login,
    main,
    raw,
    security_of,
    tell,
    tell_record,
    timeout_ms,
    transact,
    unsecured_token,
)

LIMIT_S = 30.0
QUICK = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20}


def secured(job: Job) -> dict[str, Any]:
    given = security_of(job)
    config: dict[str, Any] = {**librdkafka_login(given)}
    if "token_s" in given:
        # A token that is over would not be sent: the client is told that it holds.
        told_s = given["token_s"] if given["token_s"] > 0 else 3600.0
        config["oauth_cb"] = lambda _config: (unsecured_token(given), time.time() + told_s)
    elif "username" in given:
        config |= {"sasl.username": given["username"], "sasl.password": given["password"]}
    return config


def session(job: Job, stopped: threading.Event) -> None:
    """What goes wrong with a connection comes by `error_cb`, and not with the record that waits for it."""
    producer = Producer(
        {
            "bootstrap.servers": job["bootstrap"],
            "error_cb": lambda error: tell("fail", i=-1, error=f"{error.name()} {error.str()}"),
            "message.timeout.ms": 20_000,
            **QUICK,
            **secured(job),
        }
    )

    def send(value: str) -> None:
        told: list[Any] = []
        producer.produce(job["topic"], value.encode(), on_delivery=lambda error, _message: told.append(error))
        while not told and not stopped.is_set():
            producer.poll(0.05)
        if told and told[0] is not None:
            raise KafkaException(told[0])

    keep_sending(job, stopped, send)


def produce(job: Job, _stopped: threading.Event) -> None:
    config = {
        "bootstrap.servers": job["bootstrap"],
        "acks": job["acks"],
        "compression.type": job.get("codec", "none"),
        "enable.idempotence": job.get("idempotent", False),
        "linger.ms": 5,
        **QUICK,
        **secured(job),
    }
    if not job.get("idempotent"):
        config["max.in.flight"] = 1  # without sequence numbers that is what keeps the order
    producer = Producer(config)

    def told(i: int) -> Any:
        def report(error: Any, message: Any) -> None:
            if error is not None:
                tell("fail", i=i, error=error.name())
            else:
                tell("ack", i=i, partition=message.partition(), offset=message.offset())

        return report

    for i, it in enumerate(job["records"]):
        where: dict[str, Any] = {name: it[name] for name in ("partition", "timestamp") if name in it}
        headers = [(name, raw(value)) for name, value in it.get("headers", ())]
        key, value = raw(it.get("key")), raw(it.get("value"))
        producer.produce(job["topic"], value, key, on_delivery=told(i), headers=headers, **where)
        producer.poll(job.get("pause_ms", 0) / 1000)
    assert producer.flush(120) == 0


class Transactions:
    def __init__(self, job: Job) -> None:
        self._job = job
        config = {"transactional.id": job["transactional_id"], "transaction.timeout.ms": timeout_ms(job), **QUICK}
        self._producer = Producer({"bootstrap.servers": job["bootstrap"], **config})
        self._producer.init_transactions(LIMIT_S)

    def begin(self, _step: Job) -> None:
        self._producer.begin_transaction()

    def send(self, step: Job) -> None:
        for it in step["records"]:
            self._producer.produce(self._job["topic"], raw(it["value"]), raw(it["key"]), partition=it["partition"])
        assert self._producer.flush(LIMIT_S) == 0

    def copy(self, step: Job) -> None:
        consumer = consumer_of(self._job, **{"group.id": self._job["group"]})
        consumer.subscribe([step["source"]])
        seen = 0
        while seen < step["count"]:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                self._producer.produce(self._job["topic"], message.value(), message.key(), partition=0)
                seen += 1
        offsets = consumer.position(consumer.assignment())
        self._producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), LIMIT_S)
        assert self._producer.flush(LIMIT_S) == 0
        consumer.close()

    def commit(self, _step: Job) -> None:
        self._producer.commit_transaction(LIMIT_S)

    def abort(self, _step: Job) -> None:
        self._producer.abort_transaction(LIMIT_S)


def transactions(job: Job, stopped: threading.Event) -> None:
    transact(job["steps"], Transactions(job), stopped)


def consumer_of(job: Job, **config: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": job["bootstrap"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            **QUICK,
            **secured(job),
            **config,
        }
    )


def show(message: Any) -> None:
    tell_record(message.partition(), message.offset(), message.key(), message.value(), message.headers(), message.timestamp()[1])


def read(job: Job, _stopped: threading.Event) -> None:
    consumer = consumer_of(job, **{"group.id": "reader"})
    where = TopicPartition(job["topic"], job["partition"], job.get("offset", 0))
    if "time_ms" in job:
        where.offset = job["time_ms"]
        (where,) = consumer.offsets_for_times([where], timeout=LIMIT_S)
    consumer.assign([where])
    seen = 0
    while seen < job["count"]:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            show(message)
            seen += 1
    consumer.close()


def group(job: Job, stopped: threading.Event) -> None:
    config: dict[str, Any] = {"group.id": job["group"]}
    if job["protocol"] == "consumer":
        config["group.protocol"] = "consumer"
    else:
        strategy = {"range": "range", "cooperative": "cooperative-sticky"}[job["protocol"]]
        config |= {
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": job["session_ms"],
            "heartbeat.interval.ms": 200,
        }
    if "instance" in job:
        config["group.instance.id"] = job["instance"]
    consumer = consumer_of(job, **config)

    def moved(event: str) -> Any:
        return lambda _consumer, partitions: tell(event, partitions=[tp.partition for tp in partitions])

    consumer.subscribe([job["topic"]], on_assign=moved("assigned"), on_revoke=moved("revoked"), on_lost=moved("lost"))
    read = 0
    while not stopped.is_set():
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            show(message)
            read += 1
    if read:
        consumer.commit(asynchronous=False)
    consumer.close()


class Steps:
    def __init__(self, job: Job) -> None:
        self.admin = AdminClient({"bootstrap.servers": job["bootstrap"], **QUICK, **secured(job)})

    def create_topic(self, step: Job) -> None:
        topic = NewTopic(step["topic"], step["partitions"], step["replication_factor"], config=step.get("config", {}))
        self.admin.create_topics([topic], request_timeout=LIMIT_S)[step["topic"]].result(LIMIT_S)

    def delete_topic(self, step: Job) -> None:
        self.admin.delete_topics([step["topic"]], request_timeout=LIMIT_S)[step["topic"]].result(LIMIT_S)

    def list_topics(self, _step: Job) -> list[str]:
        return sorted(self.admin.list_topics(timeout=LIMIT_S).topics)

    def describe_topic(self, step: Job) -> Any:
        if not hasattr(self.admin, "describe_topics"):  # before 2.3
            known = self.admin.list_topics(step["topic"], timeout=LIMIT_S).topics[step["topic"]].partitions
            return {"partitions": len(known), "replicas": len(known[0].replicas)}
        topics: Any = confluent_kafka.TopicCollection([step["topic"]])
        found = self.admin.describe_topics(topics, request_timeout=LIMIT_S)[step["topic"]].result(LIMIT_S)
        return {"partitions": len(found.partitions), "replicas": len(found.partitions[0].replicas)}

    def describe_cluster(self, _step: Job) -> Any:
        found = self.admin.describe_cluster(request_timeout=LIMIT_S).result(LIMIT_S)
        return {"brokers": [node.id for node in found.nodes], "cluster_id": found.cluster_id}

    def create_partitions(self, step: Job) -> None:
        more = NewPartitions(step["topic"], step["partitions"])
        self.admin.create_partitions([more], request_timeout=LIMIT_S)[step["topic"]].result(LIMIT_S)

    def describe_configs(self, step: Job) -> Any:
        resource = ConfigResource("topic", step["topic"])
        found = self.admin.describe_configs([resource], request_timeout=LIMIT_S)[resource].result(LIMIT_S)
        dynamic = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {key: {"value": it.value, "default": it.source != dynamic} for key, it in found.items()}

    def alter_configs(self, step: Job) -> None:
        if not hasattr(self.admin, "incremental_alter_configs"):  # before 2.2, when a topic's configs were replaced as a whole
            resource = ConfigResource("topic", step["topic"], set_config=step["config"])
            self.admin.alter_configs([resource], request_timeout=LIMIT_S)[resource].result(LIMIT_S)
            return
        kinds = administration.AlterConfigOpType
        entries = [administration.ConfigEntry(k, v, incremental_operation=kinds.SET) for k, v in step["config"].items()]
        resource = ConfigResource("topic", step["topic"], incremental_configs=entries)
        self.admin.incremental_alter_configs([resource], request_timeout=LIMIT_S)[resource].result(LIMIT_S)

    def delete_records(self, step: Job) -> Any:
        where = TopicPartition(step["topic"], step["partition"], step["offset"])
        (found,) = self.admin.delete_records([where], request_timeout=LIMIT_S).values()
        return found.result(LIMIT_S).low_watermark

    def list_offset(self, step: Job) -> Any:
        at = step["at"]
        offsets = administration.OffsetSpec
        named = {"earliest": offsets.earliest, "latest": offsets.latest}
        spec = named[at]() if at in named else offsets.for_timestamp(int(at))
        where = TopicPartition(step["topic"], step["partition"])
        (found,) = self.admin.list_offsets({where: spec}, request_timeout=LIMIT_S).values()
        return found.result(LIMIT_S).offset

    def list_groups(self, _step: Job) -> Any:
        found = self.admin.list_consumer_groups(request_timeout=LIMIT_S).result(LIMIT_S)
        if found.errors:
            raise KafkaException(found.errors[0])
        return [it.group_id for it in found.valid]

    def describe_group(self, step: Job) -> Any:
        found = self.admin.describe_consumer_groups([step["group"]], request_timeout=LIMIT_S)[step["group"]].result(LIMIT_S)
        state = "".join(part.capitalize() for part in found.state.name.split("_"))
        return {"state": state, "members": len(found.members), "type": "consumer"}

    def committed(self, step: Job) -> Any:
        wanted = confluent_kafka.ConsumerGroupTopicPartitions(step["group"])
        found = self.admin.list_consumer_group_offsets([wanted], request_timeout=LIMIT_S)[step["group"]].result(LIMIT_S)
        return {str(tp.partition): tp.offset for tp in found.topic_partitions if tp.topic == step["topic"]}

    def delete_group(self, step: Job) -> None:
        self.admin.delete_consumer_groups([step["group"]], request_timeout=LIMIT_S)[step["group"]].result(LIMIT_S)


def admin(job: Job, _stopped: threading.Event) -> None:
    administer(job["steps"], Steps(job))


if __name__ == "__main__":
    main(produce=produce, read=read, group=group, admin=admin, transact=transactions, session=session)
