"""Drives kafka-python by the job on standard input (the contract: tests/clients/programs.py): all releases since 2.0."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import kafka
from kafka import admin as administration
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.coordinator.assignors.range import RangePartitionAssignor

from tests.clients.program import (
    Job,
    administer,
    keep_sending,
    main,
    named,
    raw,
    security_of,
    tell,
    tell_record,
    timeout_ms,
    transact,
    unsecured_token,
)

DYNAMIC_TOPIC_CONFIG = 1
POLL_MS = 400
"""Not less: a poll whose time is up while it joins may forget the assignment that it is then given (see README.md)."""


def secured(job: Job) -> Job:
    given = security_of(job)
    names = {
        "protocol": "security_protocol",
        "mechanism": "sasl_mechanism",
        "ca": "ssl_cafile",
        "certificate": "ssl_certfile",
        "key": "ssl_keyfile",
    }
    config: Job = {name: given[it] for it, name in names.items() if it in given}
    if "token_s" in given:
        from kafka.net.sasl.oauth import AbstractTokenProvider

        class Tokens(AbstractTokenProvider):  # type: ignore[misc]
            def token(self) -> str:
                return unsecured_token(given)

        config["sasl_oauth_token_provider"] = Tokens()
    elif "username" in given:
        config |= {"sasl_plain_username": given["username"], "sasl_plain_password": given["password"]}
    return config


def session(job: Job, stopped: threading.Event) -> None:
    """Why nobody lets it in stands in its log alone."""
    logging.basicConfig(level=logging.WARNING)
    try:
        producer = kafka.KafkaProducer(
            bootstrap_servers=job["bootstrap"],
            bootstrap_timeout_ms=10_000,
            retry_backoff_ms=50,
            reconnect_backoff_max_ms=200,
            **secured(job),
        )
    except kafka.errors.KafkaError as error:
        tell("fail", i=-1, error=named(error))
        return
    keep_sending(job, stopped, lambda value: producer.send(job["topic"], value.encode()).get(30))
    producer.close(1)


def produce(job: Job, _stopped: threading.Event) -> None:
    codec = job.get("codec", "none")
    newer: Job = {}
    if "enable_idempotence" in kafka.KafkaProducer.DEFAULT_CONFIG:  # since 2.1
        newer = {"enable_idempotence": job.get("idempotent", False), "delivery_timeout_ms": 120_000}
    many = job.get("idempotent") and hasattr(administration, "OffsetSpec")  # before 3.0 it takes one only
    producer = kafka.KafkaProducer(
        bootstrap_servers=job["bootstrap"].split(","),
        acks=job["acks"] if job["acks"] == "all" else int(job["acks"]),
        compression_type=None if codec == "none" else codec,
        linger_ms=5,
        retry_backoff_ms=50,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=200,
        # Without sequence numbers one request in flight is what keeps the order.
        max_in_flight_requests_per_connection=5 if many else 1,
        **newer,
        **secured(job),
    )
    for i, it in enumerate(job["records"]):
        future = producer.send(
            job["topic"],
            value=raw(it.get("value")),
            key=raw(it.get("key")),
            headers=[(name, raw(value)) for name, value in it.get("headers", ())],
            partition=it.get("partition"),
            timestamp_ms=it.get("timestamp"),
        )
        future.add_callback(lambda done, i=i: tell("ack", i=i, partition=done.partition, offset=done.offset))
        future.add_errback(lambda error, i=i: tell("fail", i=i, error=named(error)))
        if job.get("pause_ms"):
            time.sleep(job["pause_ms"] / 1000)
    producer.flush(120)
    producer.close()


class Transactions:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=job["bootstrap"].split(","),
            transactional_id=job["transactional_id"],
            transaction_timeout_ms=timeout_ms(job),
            retry_backoff_ms=50,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
        )
        self._producer.init_transactions()

    def begin(self, _step: Job) -> None:
        self._producer.begin_transaction()

    def send(self, step: Job) -> None:
        for it in step["records"]:
            self._producer.send(self._job["topic"], value=raw(it["value"]), key=raw(it["key"]), partition=it["partition"])
        self._producer.flush(30)

    def copy(self, step: Job) -> None:
        consumer = consumer_of(self._job, group_id=self._job["group"], isolation_level="read_committed")
        consumer.subscribe([step["source"]])
        seen = 0
        while seen < step["count"]:
            for records in consumer.poll(timeout_ms=POLL_MS, max_records=step["count"] - seen).values():
                for it in records:
                    self._producer.send(self._job["topic"], value=it.value, key=it.key, partition=0)
                    seen += 1
        self._producer.flush(30)
        offsets = {tp: kafka.OffsetAndMetadata(consumer.position(tp), "", -1) for tp in consumer.assignment()}
        self._producer.send_offsets_to_transaction(offsets, self._job["group"])
        consumer.close()

    def commit(self, _step: Job) -> None:
        self._producer.commit_transaction()

    def abort(self, _step: Job) -> None:
        self._producer.abort_transaction()


def transactions(job: Job, stopped: threading.Event) -> None:
    transact(job["steps"], Transactions(job), stopped)


def consumer_of(job: Job, **config: Any) -> Any:
    return kafka.KafkaConsumer(
        bootstrap_servers=job["bootstrap"].split(","),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        retry_backoff_ms=50,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=200,
        **secured(job),
        **config,
    )


def poll(consumer: Any) -> int:
    seen = 0
    try:
        polled = consumer.poll(timeout_ms=POLL_MS)
    except kafka.errors.KafkaConnectionError:
        # The one node that it asked for metadata is gone: it says so instead of asking the next one (see README.md).
        return 0
    for tp, records in polled.items():
        for it in records:
            tell_record(tp.partition, it.offset, it.key, it.value, it.headers, it.timestamp)
            seen += 1
    return seen


def read(job: Job, _stopped: threading.Event) -> None:
    consumer = consumer_of(job, max_poll_records=1)
    tp = kafka.TopicPartition(job["topic"], job["partition"])
    consumer.assign([tp])
    consumer.seek(tp, consumer.offsets_for_times({tp: job["time_ms"]})[tp].offset if "time_ms" in job else job.get("offset", 0))
    seen = 0
    while seen < job["count"]:
        seen += poll(consumer)
    consumer.close()


class Listener(kafka.ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked: Any) -> None:
        tell("revoked", partitions=[tp.partition for tp in revoked])

    def on_partitions_assigned(self, assigned: Any) -> None:
        tell("assigned", partitions=[tp.partition for tp in assigned])


def group(job: Job, stopped: threading.Event) -> None:
    strategy = RangePartitionAssignor
    if job["protocol"] == "cooperative":
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

        strategy = CooperativeStickyAssignor
    static = {"group_instance_id": job["instance"]} if "instance" in job else {}
    consumer = consumer_of(
        job,
        group_id=job["group"],
        session_timeout_ms=job["session_ms"],
        heartbeat_interval_ms=200,
        partition_assignment_strategy=[strategy],
        **static,
    )
    consumer.subscribe([job["topic"]], listener=Listener())
    seen = 0
    while not stopped.is_set():
        seen += poll(consumer)
    if seen:
        consumer.commit()
    consumer.close()


class Steps:
    def __init__(self, job: Job) -> None:
        self.admin = KafkaAdminClient(bootstrap_servers=job["bootstrap"].split(","), retry_backoff_ms=50, **secured(job))

    def create_topic(self, step: Job) -> None:
        options = {"num_partitions": step["partitions"], "replication_factor": step["replication_factor"]}
        self.admin.create_topics({step["topic"]: {**options, "configs": step.get("config", {})}})

    def delete_topic(self, step: Job) -> None:
        self.admin.delete_topics([step["topic"]])

    def list_topics(self, _step: Job) -> Any:
        return sorted(self.admin.list_topics())

    def describe_topic(self, step: Job) -> Any:
        (found,) = self.admin.describe_topics([step["topic"]])
        return {"partitions": len(found["partitions"]), "replicas": len(found["partitions"][0]["replica_nodes"])}

    def describe_cluster(self, _step: Job) -> Any:
        found = self.admin.describe_cluster()
        return {
            "brokers": [it["broker_id"] for it in found["brokers"] if not it.get("is_fenced")],
            "cluster_id": found["cluster_id"],
        }

    def create_partitions(self, step: Job) -> None:
        self.admin.create_partitions({step["topic"]: step["partitions"]})

    def describe_configs(self, step: Job) -> Any:
        resource = ConfigResource(ConfigResourceType.TOPIC, step["topic"])
        found = self.admin.describe_configs([resource], config_filter="all")["topic"][step["topic"]]
        return {key: {"value": it["value"], "default": source(it) != DYNAMIC_TOPIC_CONFIG} for key, it in found.items()}

    def alter_configs(self, step: Job) -> None:
        found = self.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, step["topic"], step["config"])])
        told = found["topic"][step["topic"]]
        if "Error" in str(told):
            raise RuntimeError(str(told))

    def delete_records(self, step: Job) -> Any:
        tp = kafka.TopicPartition(step["topic"], step["partition"])
        return self.admin.delete_records({tp: step["offset"]})[tp]["low_watermark"]

    def list_offset(self, step: Job) -> Any:
        offsets = administration.OffsetSpec
        named = {"earliest": offsets.EARLIEST, "latest": offsets.LATEST}
        tp = kafka.TopicPartition(step["topic"], step["partition"])
        spec = named[step["at"]] if step["at"] in named else int(step["at"])
        return self.admin.list_partition_offsets({tp: spec})[tp].offset

    def list_groups(self, _step: Job) -> Any:
        return [it["group_id"] for it in self.admin.list_groups()]

    def describe_group(self, step: Job) -> Any:
        found = self.admin.describe_groups([step["group"]])[step["group"]]
        return {"state": found["group_state"], "members": len(found["members"]), "type": found["protocol_type"]}

    def committed(self, step: Job) -> Any:
        found = self.admin.list_group_offsets(step["group"])[step["group"]]
        return {str(tp.partition): it.offset for tp, it in found.items() if tp.topic == step["topic"]}

    def delete_group(self, step: Job) -> None:
        told = self.admin.delete_groups([step["group"]])[step["group"]]
        if told != "OK":
            raise RuntimeError(told)


class EarlierSteps(Steps):
    """What was asked, and answered, in other ways before 3.0: with the structures of the protocol."""

    def create_topic(self, step: Job) -> None:
        topic = administration.NewTopic(
            step["topic"], step["partitions"], step["replication_factor"], topic_configs=step.get("config", {})
        )
        self.admin.create_topics([topic])

    def describe_topic(self, step: Job) -> Any:
        (found,) = self.admin.describe_topics([step["topic"]])
        return {"partitions": len(found["partitions"]), "replicas": len(found["partitions"][0]["replicas"])}

    def describe_configs(self, step: Job) -> Any:
        (answer,) = self.admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, step["topic"])])
        ((_code, _message, _type, _name, entries),) = answer.resources
        return {it[0]: {"value": it[1], "default": it[3] != DYNAMIC_TOPIC_CONFIG} for it in entries}

    def alter_configs(self, step: Job) -> None:
        answer = self.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, step["topic"], step["config"])])
        (answer,) = answer if isinstance(answer, list) else (answer,)
        for code, *_rest in answer.resources:
            if code:
                raise kafka.errors.for_code(code)


def source(entry: Any) -> int:
    found = entry["config_source"]
    return int(getattr(found, "value", 1 if str(found).upper() == "DYNAMIC_TOPIC_CONFIG" else 0))


def admin(job: Job, _stopped: threading.Event) -> None:
    administer(job["steps"], Steps(job) if hasattr(administration, "OffsetSpec") else EarlierSteps(job))


if __name__ == "__main__":
    main(produce=produce, read=read, group=group, admin=admin, transact=transactions, session=session)
