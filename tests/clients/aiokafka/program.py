"""Drives aiokafka by the job on standard input (the contract: tests/clients/programs.py): all releases since 0.8."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import aiokafka
from aiokafka import admin as administration
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import for_code
from aiokafka.helpers import create_ssl_context

try:
    from aiokafka.admin import NewPartitions, NewTopic
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
except ImportError:  # before 0.9, when it was built on kafka-python
    from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
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


def secured(job: Job) -> Job:
    given = security_of(job)
    if not given:
        return {}
    config: Job = {"security_protocol": given["protocol"]}
    if "ca" in given:
        config["ssl_context"] = create_ssl_context(
            cafile=given["ca"], certfile=given.get("certificate"), keyfile=given.get("key")
        )
    if "mechanism" in given:
        config["sasl_mechanism"] = given["mechanism"]
    if "token_s" in given:

        class Tokens(AbstractTokenProvider):
            async def token(self) -> str:
                return unsecured_token(given)

        config["sasl_oauth_token_provider"] = Tokens()
    elif "username" in given:
        config |= {"sasl_plain_username": given["username"], "sasl_plain_password": given["password"]}
    return config


async def session(job: Job, stopped: threading.Event) -> None:
    """Why nobody lets it in stands in its log."""
    logging.basicConfig(level=logging.WARNING)
    loop = asyncio.get_running_loop()
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=job["bootstrap"], retry_backoff_ms=50, **secured(job))
    try:
        await producer.start()
    except aiokafka.errors.KafkaError as error:
        tell("fail", i=-1, error=named(error))
        return

    def send(value: str) -> None:
        asyncio.run_coroutine_threadsafe(producer.send_and_wait(job["topic"], value.encode()), loop).result(60)

    await asyncio.to_thread(keep_sending, job, stopped, send)
    await producer.stop()


async def produce(job: Job, _stopped: threading.Event) -> None:
    codec = job.get("codec", "none")
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=job["bootstrap"],
        acks=job["acks"] if job["acks"] == "all" else int(job["acks"]),
        compression_type=None if codec == "none" else codec,
        enable_idempotence=job.get("idempotent", False),
        linger_ms=5,
        retry_backoff_ms=50,
        **secured(job),
    )
    await producer.start()

    async def told(i: int, sent: Any) -> None:
        try:
            done = await sent
        except Exception as error:  # noqa: BLE001 - whatever the client raises is what the test wants to see
            tell("fail", i=i, error=named(error))
        else:
            tell("ack", i=i, partition=getattr(done, "partition", None), offset=getattr(done, "offset", None))

    waiting = []
    for i, it in enumerate(job["records"]):
        sent = await producer.send(
            job["topic"],
            value=raw(it.get("value")),
            key=raw(it.get("key")),
            headers=[(name, raw(value)) for name, value in it.get("headers", ())],
            partition=it.get("partition"),
            timestamp_ms=it.get("timestamp"),
        )
        waiting.append(asyncio.create_task(told(i, sent)))
        if job.get("pause_ms"):
            await asyncio.sleep(job["pause_ms"] / 1000)
    await asyncio.gather(*waiting)
    await producer.stop()


class Transactions:
    """The methods run in a thread of their own, their coroutines in the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, job: Job, producer: Any) -> None:
        self._loop = loop
        self._job = job
        self._producer = producer

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def begin(self, _step: Job) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, step: Job) -> None:
        self._run(self._send([(raw(it["key"]), raw(it["value"]), it["partition"]) for it in step["records"]]))

    async def _send(self, records: list[tuple[bytes | None, bytes | None, int]]) -> None:
        for key, value, partition in records:
            await self._producer.send(self._job["topic"], value=value, key=key, partition=partition)
        await self._producer.flush()

    def copy(self, step: Job) -> None:
        self._run(self._copy(step))

    async def _copy(self, step: Job) -> None:
        consumer = consumer_of(self._job, group_id=self._job["group"], isolation_level="read_committed")
        consumer.subscribe([step["source"]])
        await consumer.start()
        found: list[tuple[bytes | None, bytes | None, int]] = []
        while len(found) < step["count"]:
            for records in (await consumer.getmany(timeout_ms=50, max_records=step["count"] - len(found))).values():
                found += [(it.key, it.value, 0) for it in records]
        await self._send(found)
        offsets = {tp: await consumer.position(tp) for tp in consumer.assignment()}
        await self._producer.send_offsets_to_transaction(offsets, self._job["group"])
        await consumer.stop()

    def commit(self, _step: Job) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self, _step: Job) -> None:
        self._run(self._producer.abort_transaction())


async def transactions(job: Job, stopped: threading.Event) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=job["bootstrap"],
        transactional_id=job["transactional_id"],
        transaction_timeout_ms=timeout_ms(job),
        retry_backoff_ms=50,
    )
    await producer.start()
    await asyncio.to_thread(transact, job["steps"], Transactions(asyncio.get_running_loop(), job, producer), stopped)
    await producer.stop()


def consumer_of(job: Job, **config: Any) -> Any:
    return aiokafka.AIOKafkaConsumer(
        bootstrap_servers=job["bootstrap"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        retry_backoff_ms=50,
        **secured(job),
        **config,
    )


async def poll(consumer: Any, most: int = 500) -> int:
    seen = 0
    for tp, records in (await consumer.getmany(timeout_ms=50, max_records=most)).items():
        for it in records:
            tell_record(tp.partition, it.offset, it.key, it.value, it.headers, it.timestamp)
            seen += 1
    return seen


async def read(job: Job, _stopped: threading.Event) -> None:
    consumer = consumer_of(job)
    await consumer.start()
    tp = aiokafka.TopicPartition(job["topic"], job["partition"])
    consumer.assign([tp])
    offset = job.get("offset", 0)
    if "time_ms" in job:
        offset = (await consumer.offsets_for_times({tp: job["time_ms"]}))[tp].offset
    consumer.seek(tp, offset)
    seen = 0
    while seen < job["count"]:
        seen += await poll(consumer, job["count"] - seen)
    await consumer.stop()


class Listener(aiokafka.ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked: Any) -> None:
        tell("revoked", partitions=[tp.partition for tp in revoked])

    def on_partitions_assigned(self, assigned: Any) -> None:
        tell("assigned", partitions=[tp.partition for tp in assigned])


async def group(job: Job, stopped: threading.Event) -> None:
    static = {"group_instance_id": job["instance"]} if "instance" in job else {}
    consumer = consumer_of(
        job,
        group_id=job["group"],
        session_timeout_ms=job["session_ms"],
        heartbeat_interval_ms=200,
        partition_assignment_strategy=[RangePartitionAssignor],
        **static,
    )
    consumer.subscribe([job["topic"]], listener=Listener())
    await consumer.start()
    seen = 0
    while not stopped.is_set():
        seen += await poll(consumer)
    if seen:
        await consumer.commit()
    await consumer.stop()


class Steps:
    """The methods run in a thread of their own, their coroutines in the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, admin: Any, consumer: Any) -> None:
        self._loop = loop
        self._admin = admin
        self._consumer = consumer

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def create_topic(self, step: Job) -> None:
        topic = NewTopic(step["topic"], step["partitions"], step["replication_factor"], topic_configs=step.get("config", {}))
        refuse(self._run(self._admin.create_topics([topic])).topic_errors)

    def delete_topic(self, step: Job) -> None:
        refuse(self._run(self._admin.delete_topics([step["topic"]])).topic_error_codes)

    def list_topics(self, _step: Job) -> Any:
        return sorted(self._run(self._admin.list_topics()))

    def describe_topic(self, step: Job) -> Any:
        (found,) = self._run(self._admin.describe_topics([step["topic"]]))
        return {"partitions": len(found["partitions"]), "replicas": len(found["partitions"][0]["replicas"])}

    def describe_cluster(self, _step: Job) -> Any:
        found = self._run(self._admin.describe_cluster())
        return {"brokers": [it["node_id"] for it in found["brokers"]], "cluster_id": found["cluster_id"]}

    def create_partitions(self, step: Job) -> None:
        self._run(self._admin.create_partitions({step["topic"]: NewPartitions(step["partitions"])}))

    def describe_configs(self, step: Job) -> Any:
        (answer,) = self._run(self._admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, step["topic"])]))
        ((_code, _message, _type, _name, entries),) = answer.resources
        return {it[0]: {"value": it[1], "default": it[3] != DYNAMIC_TOPIC_CONFIG} for it in entries}

    def alter_configs(self, step: Job) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, step["topic"], configs=step["config"])
        (answer,) = self._run(self._admin.alter_configs([resource]))
        refuse([(it[3], it[0]) for it in answer.resources])

    def delete_records(self, step: Job) -> Any:
        tp = aiokafka.TopicPartition(step["topic"], step["partition"])
        return self._run(self._admin.delete_records({tp: administration.RecordsToDelete(step["offset"])}))[tp]

    def list_offset(self, step: Job) -> Any:
        tp = aiokafka.TopicPartition(step["topic"], step["partition"])
        if step["at"] == "earliest":
            return self._run(self._consumer.beginning_offsets([tp]))[tp]
        if step["at"] == "latest":
            return self._run(self._consumer.end_offsets([tp]))[tp]
        return self._run(self._consumer.offsets_for_times({tp: int(step["at"])}))[tp].offset

    def list_groups(self, _step: Job) -> Any:
        return [it[0] for it in self._run(self._admin.list_consumer_groups())]

    def describe_group(self, step: Job) -> Any:
        (answer,) = self._run(self._admin.describe_consumer_groups([step["group"]]))
        (_code, _group, state, protocol_type, _protocol, members, *_rest) = answer.groups[0]
        return {"state": state, "members": len(members), "type": protocol_type}

    def committed(self, step: Job) -> Any:
        found = self._run(self._admin.list_consumer_group_offsets(step["group"]))
        return {str(tp.partition): it.offset for tp, it in found.items() if tp.topic == step["topic"]}


def refuse(results: Any) -> None:
    for _name, code, *_message in results:
        if code:
            raise for_code(code)


async def admin(job: Job, _stopped: threading.Event) -> None:
    client = AIOKafkaAdminClient(bootstrap_servers=job["bootstrap"], retry_backoff_ms=50, **secured(job))
    await client.start()
    consumer = consumer_of(job)
    await consumer.start()
    steps = Steps(asyncio.get_running_loop(), client, consumer)
    await asyncio.to_thread(administer, job["steps"], steps)
    await consumer.stop()
    await client.close()


def blocking(op: Callable[[Job, threading.Event], Coroutine[Any, Any, None]]) -> Callable[[Job, threading.Event], None]:
    return lambda job, stopped: asyncio.run(op(job, stopped))


if __name__ == "__main__":
    main(
        produce=blocking(produce),
        read=blocking(read),
        group=blocking(group),
        admin=blocking(admin),
        transact=blocking(transactions),
        session=blocking(session),
    )
