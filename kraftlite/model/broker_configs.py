"""Every key of a node's configuration: those of the defaults table, those that real `server.properties` files carry, and ours.

A key that is only known, so that pasted files give no warning, has no effect and says so in its doc.
Source: Kafka's broker configuration reference; docs/spec/defaults.md; CM-49, CM-51.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kraftlite.model.addresses import canonical_address
from kraftlite.model.configdef import (
    Allowed,
    ConfigKey,
    ConfigType,
    UpdateMode,
    at_least,
    between,
    by_name,
    each_of,
    either,
    one_of,
)
from kraftlite.model.limits import KIB, MAX_INT32, MAX_INT64, MIB
from kraftlite.model.topic_configs import TOPIC_CONFIGS

_B, _SHORT, _I, _L, _D, _S, _LIST, _P, _C = (
    ConfigType.BOOLEAN,
    ConfigType.SHORT,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.STRING,
    ConfigType.LIST,
    ConfigType.PASSWORD,
    ConfigType.CLASS,
)
LISTENER_NAMES: Final = "listeners"
LISTENER_PROTOCOLS: Final = "listener.security.protocol.map"
_NEVER: Final = str(MAX_INT64)
_HOUR_MS: Final = 3600 * 1000
_DAY_MS: Final = 24 * _HOUR_MS

_Row = tuple[str, ConfigType, str | None, Allowed | None, UpdateMode, str]
_RO: Final[UpdateMode] = "read-only"
_ALL: Final[UpdateMode] = "cluster-wide"
_ONE: Final[UpdateMode] = "per-broker"
_PORT = between(0, 65535)
_POSITIVE = at_least(1)
_NATURAL = at_least(0)
_RETENTION = either(-1, at_least(1))
_ASSIGNORS = (
    "uniform",
    "range",
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
)
_OVERRIDE: Final = re.compile(r"\s*(?P<address>\[[0-9a-fA-F:.]+\]|[0-9.]+):(?P<count>[0-9]{1,9})\s*")


def connection_overrides(text: str) -> dict[str, int] | None:
    """`max.connections.per.ip.overrides` by address; None for what it cannot be."""
    found = [_OVERRIDE.fullmatch(item) for item in text.split(",") if item.strip()]
    return {canonical_address(it["address"].strip("[]")): int(it["count"]) for it in found if it} if all(found) else None


_OVERRIDES = Allowed(
    lambda value: connection_overrides(value) is not None, "address:connections, several with commas, for example 10.0.0.7:20"
)
_POLICIES = ("bidirectional", "downgrade", "upgrade", "disabled")

_NODE: tuple[_Row, ...] = (
    ("process.roles", _LIST, None, each_of("broker", "controller"), _RO, "What this node is: broker, controller or both."),
    ("node.id", _I, None, _NATURAL, _RO, "The node's id, unique over brokers and controllers."),
    ("broker.id", _I, None, at_least(-1), _RO, "Older name of node.id; must agree with it."),
    ("broker.rack", _S, None, None, _RO, "Where the broker stands; replicas are spread over racks."),
    ("server.max.startup.time.ms", _L, _NEVER, _NATURAL, _RO, "How long start-up may take."),
    (LISTENER_NAMES, _LIST, "PLAINTEXT://:9092", None, _ONE, "NAME://host:port of every listener."),
    ("advertised.listeners", _LIST, None, None, _RO, "NAME://host:port that clients and other nodes are told."),
    (
        LISTENER_PROTOCOLS,
        _S,
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        None,
        _ONE,
        "NAME:PROTOCOL of every listener name.",
    ),
    ("controller.listener.names", _LIST, None, None, _RO, "The listeners of the controllers; brokers use the first."),
    ("inter.broker.listener.name", _S, None, None, _RO, "The gRPC listener on which brokers replicate."),
    ("security.inter.broker.protocol", _S, "PLAINTEXT", None, _RO, "The protocol, and name, of the listener between brokers."),
    ("controller.quorum.voters", _LIST, None, None, _RO, "id@host:port of every controller of a static quorum."),
    ("controller.quorum.bootstrap.servers", _LIST, None, None, _RO, "host:port of controllers, for a dynamic quorum."),
    ("controller.quorum.auto.join.enable", _B, "false", None, _RO, "A controller adds itself to the voters."),
)

_QUORUM: tuple[_Row, ...] = (
    ("controller.quorum.election.timeout.ms", _I, "1000", _POSITIVE, _RO, "Base of the random time before an election."),
    ("controller.quorum.fetch.timeout.ms", _I, "2000", _POSITIVE, _RO, "How long a follower waits for its leader."),
    ("controller.quorum.election.backoff.max.ms", _I, "1000", _NATURAL, _RO, "Longest pause between two candidacies."),
    ("controller.quorum.append.linger.ms", _I, "25", _NATURAL, _RO, "How long the leader collects records of a batch."),
    ("controller.quorum.request.timeout.ms", _I, "2000", _POSITIVE, _RO, "How long one quorum request may take."),
    ("controller.quorum.retry.backoff.ms", _I, "20", _NATURAL, _RO, "Pause before a quorum request is sent again."),
    ("controller.quorum.fetch.snapshot.max.bytes", _I, str(MIB), _POSITIVE, _RO, "Bytes of one piece of a snapshot."),
    ("metadata.log.dir", _S, None, None, _RO, "Where the metadata log lives; the first of log.dirs if unset."),
    ("metadata.log.segment.bytes", _I, str(KIB * MIB), at_least(8 * MIB), _RO, "Size of a metadata segment."),
    ("metadata.log.segment.ms", _L, str(7 * _DAY_MS), _POSITIVE, _RO, "Age of a metadata segment."),
    (
        "metadata.log.max.record.bytes.between.snapshots",
        _L,
        "20971520",
        _POSITIVE,
        _RO,
        "Bytes of new metadata after which a snapshot is written.",
    ),
    ("metadata.log.max.snapshot.interval.ms", _L, "3600000", _NATURAL, _RO, "Time after which a snapshot is written; 0: never."),
    ("metadata.max.retention.bytes", _L, "104857600", at_least(-1), _RO, "Size at which old metadata is removed."),
    ("metadata.max.retention.ms", _L, str(7 * _DAY_MS), at_least(-1), _RO, "Age at which old metadata is removed."),
    ("controller.performance.sample.period.ms", _L, "60000", at_least(100), _RO, "Period of telling how long events take."),
    (
        "controller.performance.always.log.threshold.ms",
        _L,
        "2000",
        _NATURAL,
        _RO,
        "Duration from which on an event of the controller is told of by itself.",
    ),
    ("metadata.max.idle.interval.ms", _I, "500", _NATURAL, _RO, "Period of no-op metadata records; 0: none."),
)

_BROKER: tuple[_Row, ...] = (
    ("broker.heartbeat.interval.ms", _I, "2000", _POSITIVE, _RO, "Period of a broker's heartbeats."),
    ("broker.session.timeout.ms", _I, "9000", _POSITIVE, _RO, "Silence after which a broker is fenced."),
    ("initial.broker.registration.timeout.ms", _I, "60000", _POSITIVE, _RO, "How long a broker tries to register."),
    ("controlled.shutdown.enable", _B, "true", None, _RO, "Whether a stopping broker hands its leaderships over first."),
    ("controlled.shutdown.max.retries", _I, "3", _NATURAL, _RO, "Known; the controller decides."),
    ("controlled.shutdown.retry.backoff.ms", _L, "5000", _NATURAL, _RO, "Known; the controller decides."),
    ("log.dir.failure.timeout.ms", _L, "30000", _POSITIVE, _RO, "How long a failed directory may stay unreported."),
    ("unstable.feature.versions.enable", _B, "false", None, _RO, "Whether feature levels in development are allowed."),
    ("unstable.api.versions.enable", _B, "false", None, _RO, "Known; every API that is offered is stable."),
    ("log.dir", _LIST, "/tmp/kafka-logs", None, _RO, "The log directory if log.dirs is unset."),
    ("log.dirs", _LIST, None, None, _RO, "The directories of this node's logs, one for each disk."),
    ("cordoned.log.dirs", _LIST, "", None, _ONE, "Those of log.dirs that get no new replicas; * stands for all."),
    ("num.partitions", _I, "1", _POSITIVE, _RO, "Partitions of a topic that does not say."),
    ("default.replication.factor", _I, "1", between(1, 32767), _RO, "Replicas of a topic that does not say."),
    ("min.insync.replicas", _I, "1", _POSITIVE, _ALL, "How large the ISR must be for a write with acks=all."),
    ("unclean.leader.election.enable", _B, "false", None, _ALL, "Whether an election may lose records."),
    (
        "unclean.leader.election.interval.ms",
        _L,
        "300000",
        _POSITIVE,
        _RO,
        "Period of looking for partitions that an unclean election may bring back.",
    ),
    ("auto.create.topics.enable", _B, "true", None, _RO, "Whether asking for a topic creates it."),
    ("delete.topic.enable", _B, "true", None, _RO, "Whether topics may be deleted."),
    ("auto.leader.rebalance.enable", _B, "true", None, _RO, "Whether preferred leaders are elected again by themselves."),
    ("leader.imbalance.check.interval.seconds", _L, "300", _POSITIVE, _RO, "Period of looking for partitions to move back."),
    ("leader.imbalance.per.broker.percentage", _I, "10", _NATURAL, _RO, "Known; any imbalance is put right."),
    ("replica.lag.time.max.ms", _L, "30000", _POSITIVE, _RO, "How long a follower may lag before it leaves the ISR."),
    ("replica.fetch.min.bytes", _I, "1", _NATURAL, _RO, "Bytes for which a follower's fetch waits."),
    ("replica.fetch.wait.max.ms", _I, "500", _NATURAL, _RO, "How long a follower's fetch waits."),
    ("replica.fetch.max.bytes", _I, str(MIB), _NATURAL, _RO, "Bytes of one partition in a follower's fetch."),
    ("replica.fetch.response.max.bytes", _I, str(10 * MIB), _NATURAL, _RO, "Bytes of a follower's fetch."),
    ("replica.fetch.backoff.ms", _I, "1000", _NATURAL, _RO, "Pause after an error while fetching."),
    ("num.replica.fetchers", _I, "1", _POSITIVE, _ALL, "Fetchers per leader broker."),
    ("replica.high.watermark.checkpoint.interval.ms", _L, "5000", _POSITIVE, _RO, "Period of writing HWs to disk."),
    ("replica.socket.timeout.ms", _I, "30000", _POSITIVE, _RO, "How long a follower's fetch may take."),
    ("replica.socket.receive.buffer.bytes", _I, "65536", at_least(-1), _RO, "Known; gRPC decides."),
    ("replica.selector.class", _S, None, None, _RO, "Chooses the replica that a consumer reads from."),
    ("replication.quota.window.num", _I, "11", _POSITIVE, _RO, "Samples that a replication throttle looks at."),
    ("replication.quota.window.size.seconds", _I, "1", _POSITIVE, _RO, "Length of a replication throttle's sample."),
    ("alter.log.dirs.replication.quota.window.num", _I, "11", _POSITIVE, _RO, "Samples that the throttle of moves looks at."),
    ("alter.log.dirs.replication.quota.window.size.seconds", _I, "1", _POSITIVE, _RO, "Length of a sample of that throttle."),
    ("leader.replication.throttled.rate", _L, _NEVER, _NATURAL, _ALL, "Bytes a second sent to throttled followers."),
    ("follower.replication.throttled.rate", _L, _NEVER, _NATURAL, _ALL, "Bytes a second fetched for throttled replicas."),
    (
        "replica.alter.log.dirs.io.max.bytes.per.second",
        _D,
        "1.7976931348623157E308",
        _POSITIVE,
        _ALL,
        "Bytes a second copied between directories.",
    ),
)

_LOG: tuple[_Row, ...] = (
    ("log.segment.bytes", _I, str(KIB * MIB), at_least(14), _ALL, "Default of segment.bytes."),
    ("log.roll.ms", _L, None, _POSITIVE, _ALL, "Default of segment.ms; log.roll.hours if unset."),
    ("log.roll.hours", _I, "168", _POSITIVE, _RO, "Default of segment.ms, in hours."),
    ("log.roll.jitter.ms", _L, None, _NATURAL, _ALL, "Default of segment.jitter.ms; log.roll.jitter.hours if unset."),
    ("log.roll.jitter.hours", _I, "0", _NATURAL, _RO, "Default of segment.jitter.ms, in hours."),
    ("log.retention.ms", _L, None, _RETENTION, _ALL, "Default of retention.ms; log.retention.minutes if unset."),
    ("log.retention.minutes", _I, None, _RETENTION, _RO, "Default of retention.ms, in minutes."),
    ("log.retention.hours", _I, "168", _RETENTION, _RO, "Default of retention.ms, in hours."),
    ("log.retention.bytes", _L, "-1", _RETENTION, _ALL, "Default of retention.bytes."),
    ("log.retention.check.interval.ms", _L, "300000", _POSITIVE, _RO, "Period of deleting old segments."),
    ("log.initial.task.delay.ms", _L, "30000", _NATURAL, _RO, "First run of the periodic work on logs."),
    ("log.segment.delete.delay.ms", _L, "60000", _NATURAL, _ALL, "Default of file.delete.delay.ms."),
    ("log.cleanup.policy", _LIST, "delete", each_of("compact", "delete", empty=True), _ALL, "Default of cleanup.policy."),
    ("log.index.interval.bytes", _I, "4096", _NATURAL, _ALL, "Default of index.interval.bytes."),
    ("log.index.size.max.bytes", _I, str(10 * MIB), at_least(4), _ALL, "Default of segment.index.bytes."),
    ("log.flush.interval.messages", _L, _NEVER, _POSITIVE, _ALL, "Default of flush.messages."),
    ("log.flush.interval.ms", _L, None, _NATURAL, _ALL, "Default of flush.ms."),
    ("log.flush.scheduler.interval.ms", _L, _NEVER, _NATURAL, _RO, "Period of looking for logs to flush."),
    ("log.flush.offset.checkpoint.interval.ms", _I, "60000", _NATURAL, _RO, "Period of writing recovery points."),
    ("log.flush.start.offset.checkpoint.interval.ms", _I, "60000", _NATURAL, _RO, "Period of writing log starts."),
    ("num.recovery.threads.per.data.dir", _I, "2", _POSITIVE, _ALL, "Known; recovery is one pass per directory."),
    ("log.message.timestamp.type", _S, "CreateTime", one_of("CreateTime", "LogAppendTime"), _ALL, "Default of it."),
    ("log.message.timestamp.before.max.ms", _L, _NEVER, _NATURAL, _ALL, "Default of message.timestamp.before.max.ms."),
    ("log.message.timestamp.after.max.ms", _L, str(_HOUR_MS), _NATURAL, _ALL, "Default of message.timestamp.after.max.ms."),
    ("log.preallocate", _B, "false", None, _ALL, "Default of preallocate."),
    ("log.local.retention.ms", _L, "-2", at_least(-2), _ALL, "Default of local.retention.ms."),
    ("log.local.retention.bytes", _L, "-2", at_least(-2), _ALL, "Default of local.retention.bytes."),
    ("message.max.bytes", _I, str(MIB + 12), _NATURAL, _ALL, "Default of max.message.bytes."),
    (
        "compression.type",
        _S,
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        _ALL,
        "Default of the topic key of this name.",
    ),
    ("compression.gzip.level", _I, "-1", either(-1, between(1, 9)), _ALL, "Default of the topic key of this name."),
    ("compression.lz4.level", _I, "9", between(1, 17), _ALL, "Default of the topic key of this name."),
    ("compression.zstd.level", _I, "3", between(-131072, 22), _ALL, "Default of the topic key of this name."),
    ("log.cleaner.enable", _B, "true", None, _RO, "Whether compacted topics are compacted."),
    ("log.cleaner.threads", _I, "1", _POSITIVE, _ALL, "Compaction workers."),
    ("log.cleaner.dedupe.buffer.size", _L, "134217728", at_least(MIB), _ALL, "Memory of the compaction's key map."),
    ("log.cleaner.io.buffer.size", _I, "524288", _NATURAL, _ALL, "Read and write buffers of compaction."),
    ("log.cleaner.io.buffer.load.factor", _D, "0.9", between(0, 1), _ALL, "How full the key map may get."),
    ("log.cleaner.io.max.bytes.per.second", _D, "1.7976931348623157E308", None, _ALL, "Throttle of compaction."),
    ("log.cleaner.backoff.ms", _L, "15000", _NATURAL, _ALL, "Pause when there is nothing to compact."),
    ("log.cleaner.delete.retention.ms", _L, str(_DAY_MS), _NATURAL, _ALL, "Default of delete.retention.ms."),
    ("log.cleaner.min.cleanable.ratio", _D, "0.5", between(0, 1), _ALL, "Default of min.cleanable.dirty.ratio."),
    ("log.cleaner.min.compaction.lag.ms", _L, "0", _NATURAL, _ALL, "Default of min.compaction.lag.ms."),
    ("log.cleaner.max.compaction.lag.ms", _L, _NEVER, _POSITIVE, _ALL, "Default of max.compaction.lag.ms."),
    ("producer.id.expiration.ms", _I, "86400000", _POSITIVE, _ALL, "Idle time after which a producer's state is dropped."),
    ("producer.id.expiration.check.interval.ms", _I, "600000", _POSITIVE, _RO, "Period of looking for such producers."),
)

_NETWORK: tuple[_Row, ...] = (
    ("num.network.threads", _I, "3", _POSITIVE, _ALL, "Known; a node has one event loop."),
    ("num.io.threads", _I, "8", _POSITIVE, _ALL, "Known; a node has one event loop."),
    ("background.threads", _I, "10", _POSITIVE, _ALL, "Known; a node has one event loop."),
    ("queued.max.requests", _I, "500", _POSITIVE, _RO, "Requests that may wait."),
    ("queued.max.request.bytes", _L, "-1", None, _RO, "Bytes of requests that are partly here; -1: 256 MiB."),
    ("request.timeout.ms", _I, "30000", _POSITIVE, _RO, "How long a broker's own operations may take."),
    ("socket.request.max.bytes", _I, "104857600", _POSITIVE, _RO, "The largest request that is read."),
    ("socket.send.buffer.bytes", _I, "102400", at_least(-1), _RO, "SO_SNDBUF; -1: the system's."),
    ("socket.receive.buffer.bytes", _I, "102400", at_least(-1), _RO, "SO_RCVBUF; -1: the system's."),
    ("socket.listen.backlog.size", _I, "50", _POSITIVE, _RO, "Connections that wait to be accepted."),
    ("connections.max.idle.ms", _L, "600000", None, _RO, "Idle time after which a connection is closed."),
    ("max.connections", _I, str(MAX_INT32), _NATURAL, _ALL, "Connections of a broker."),
    ("max.connections.per.ip", _I, str(MAX_INT32), _NATURAL, _ALL, "Connections of one address."),
    ("max.connections.per.ip.overrides", _S, "", _OVERRIDES, _ALL, "address:connections of single addresses."),
    ("max.connection.creation.rate", _I, str(MAX_INT32), _NATURAL, _ALL, "New connections a second."),
    ("fetch.max.bytes", _I, "57671680", at_least(1024), _RO, "Bytes of a fetch response."),
    ("max.incremental.fetch.session.cache.slots", _I, "1000", _NATURAL, _RO, "Fetch sessions that are kept."),
    ("max.request.partition.size.limit", _I, "2000", _POSITIVE, _RO, "Partitions of one DescribeTopicPartitions page."),
    ("quota.window.num", _I, "11", _POSITIVE, _RO, "Samples that a quota looks at."),
    ("quota.window.size.seconds", _I, "1", _POSITIVE, _RO, "Length of a quota's sample."),
    ("controller.quota.window.num", _I, "11", _POSITIVE, _RO, "Samples that a controller quota looks at."),
    ("controller.quota.window.size.seconds", _I, "1", _POSITIVE, _RO, "Length of a controller quota's sample."),
    ("telemetry.max.bytes", _I, "1048576", _POSITIVE, _RO, "Bytes of one push of a client's metrics, as it is sent."),
    ("metric.reporters", _LIST, "", None, _ALL, "Known; see kraftlite.metrics.port."),
    ("metrics.num.samples", _I, "2", _POSITIVE, _RO, "Known; see kraftlite.metrics.port."),
    ("metrics.recording.level", _S, "INFO", None, _RO, "Known; see kraftlite.metrics.port."),
    ("metrics.sample.window.ms", _L, "30000", _POSITIVE, _RO, "Known; see kraftlite.metrics.port."),
    ("confluent.support.metrics.enable", _B, "false", None, _RO, "Known; nothing is reported anywhere."),
    ("create.topic.policy.class.name", _C, None, None, _RO, "module:name of the policy that controllers ask about new topics."),
    ("alter.config.policy.class.name", _C, None, None, _RO, "module:name of the policy that controllers ask about configs."),
)

_GROUPS: tuple[_Row, ...] = (
    ("group.min.session.timeout.ms", _I, "6000", _POSITIVE, _RO, "Shortest session of a group member."),
    ("group.max.session.timeout.ms", _I, "1800000", _POSITIVE, _RO, "Longest session of a group member."),
    ("group.initial.rebalance.delay.ms", _I, "3000", _NATURAL, _RO, "How long an empty group waits for members."),
    ("group.max.size", _I, str(MAX_INT32), _POSITIVE, _RO, "Members of a group."),
    ("group.coordinator.rebalance.protocols", _LIST, "classic,consumer", None, _RO, "Protocols of groups."),
    ("group.consumer.session.timeout.ms", _I, "45000", _POSITIVE, _RO, "Session of a member of a consumer group."),
    ("group.consumer.min.session.timeout.ms", _I, "45000", _POSITIVE, _RO, "Shortest session that a group may set."),
    ("group.consumer.max.session.timeout.ms", _I, "60000", _POSITIVE, _RO, "Longest session that a group may set."),
    ("group.consumer.heartbeat.interval.ms", _I, "5000", _POSITIVE, _RO, "Heartbeats of such a member."),
    ("group.consumer.min.heartbeat.interval.ms", _I, "5000", _POSITIVE, _RO, "Shortest interval that a group may set."),
    ("group.consumer.max.heartbeat.interval.ms", _I, "15000", _POSITIVE, _RO, "Longest interval that a group may set."),
    ("group.consumer.assignment.interval.ms", _I, "1000", _NATURAL, _ALL, "How long an assignment lasts at least."),
    ("group.consumer.min.assignment.interval.ms", _I, "0", _NATURAL, _RO, "Shortest interval that a group may set."),
    ("group.consumer.max.assignment.interval.ms", _I, "15000", _NATURAL, _RO, "Longest interval that a group may set."),
    ("group.consumer.max.size", _I, str(MAX_INT32), _POSITIVE, _RO, "Members of such a group."),
    ("group.consumer.assignors", _LIST, "uniform,range", each_of(*_ASSIGNORS), _RO, "Assignors, the default first."),
    (
        "group.consumer.migration.policy",
        _S,
        "bidirectional",
        one_of(*_POLICIES, *(policy.upper() for policy in _POLICIES)),
        _RO,
        "Whether groups change their protocol with members inside.",
    ),
    ("group.consumer.regex.refresh.interval.ms", _I, "600000", at_least(10_000), _RO, "Period of matching all topics again."),
    ("offsets.topic.num.partitions", _I, "50", _POSITIVE, _RO, "Partitions of __consumer_offsets."),
    ("offsets.topic.replication.factor", _SHORT, "3", _POSITIVE, _RO, "Replicas of __consumer_offsets."),
    ("offsets.topic.segment.bytes", _I, "104857600", _POSITIVE, _RO, "Segments of __consumer_offsets."),
    ("offsets.topic.compression.codec", _I, "0", between(0, 4), _RO, "Codec of __consumer_offsets."),
    ("offsets.load.buffer.size", _I, "5242880", _POSITIVE, _RO, "Read size when offsets are loaded."),
    ("offsets.retention.minutes", _I, "10080", _POSITIVE, _RO, "How long offsets of an empty group are kept."),
    ("offsets.retention.check.interval.ms", _L, "600000", _POSITIVE, _RO, "Period of looking for such offsets."),
    ("offset.metadata.max.bytes", _I, "4096", None, _RO, "Length of the metadata of an offset."),
    ("offsets.commit.timeout.ms", _I, "5000", _POSITIVE, _RO, "How long a commit waits for its replicas."),
    ("transaction.max.timeout.ms", _I, "900000", _POSITIVE, _RO, "Longest transaction."),
    ("transactional.id.expiration.ms", _I, "604800000", _POSITIVE, _RO, "Idle time of a transactional id."),
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", _I, "10000", _POSITIVE, _RO, "Period of aborting."),
    ("transaction.remove.expired.transaction.cleanup.interval.ms", _I, "3600000", _POSITIVE, _RO, "Period of removing."),
    ("transaction.state.log.num.partitions", _I, "50", _POSITIVE, _RO, "Partitions of __transaction_state."),
    ("transaction.state.log.replication.factor", _SHORT, "3", _POSITIVE, _RO, "Replicas of __transaction_state."),
    ("transaction.state.log.min.isr", _I, "2", _POSITIVE, _RO, "min.insync.replicas of __transaction_state."),
    ("transaction.state.log.segment.bytes", _I, "104857600", _POSITIVE, _RO, "Segments of __transaction_state."),
    ("transaction.state.log.load.buffer.size", _I, "5242880", _POSITIVE, _RO, "Read size when transactions are loaded."),
    ("transaction.partition.verification.enable", _B, "true", None, _ALL, "Whether a write asks for its transaction."),
    ("add.partitions.to.txn.retry.backoff.ms", _I, "20", _POSITIVE, _RO, "Pause before a write asks its coordinator again."),
    ("add.partitions.to.txn.retry.backoff.max.ms", _I, "100", _POSITIVE, _RO, "How long a write asks its coordinator again."),
    ("share.coordinator.state.topic.replication.factor", _SHORT, "3", _POSITIVE, _RO, "Known; share groups are not supported."),
    ("share.coordinator.state.topic.min.isr", _SHORT, "2", _POSITIVE, _RO, "Known; share groups are not supported."),
)

_SECURITY: tuple[_Row, ...] = (
    ("authorizer.class.name", _S, "", None, _RO, "The authorizer; none if empty."),
    ("super.users", _S, "", None, _RO, "Principals that may do everything."),
    ("allow.everyone.if.no.acl.found", _B, "false", None, _RO, "What holds for a resource without ACLs."),
    ("early.start.listeners", _LIST, None, None, _RO, "Listeners that open before the ACLs are known."),
    ("principal.builder.class", _C, None, None, _RO, "Known; not supported."),
    ("sasl.enabled.mechanisms", _LIST, "GSSAPI", None, _ONE, "SASL mechanisms of the listeners."),
    ("sasl.mechanism.inter.broker.protocol", _S, "GSSAPI", None, _ONE, "SASL mechanism between brokers."),
    ("sasl.mechanism.controller.protocol", _S, "GSSAPI", None, _RO, "SASL mechanism to controllers."),
    ("sasl.jaas.config", _P, None, None, _ONE, "Users or options of a SASL mechanism, named before it."),
    ("sasl.server.callback.handler.class", _C, None, None, _RO, "Whether OAUTHBEARER tokens are signed."),
    ("sasl.server.max.receive.size", _I, "524288", _POSITIVE, _RO, "Longest message of a client that authenticates."),
    ("connections.max.reauth.ms", _L, "0", _NATURAL, _RO, "Time after which a client must authenticate again; 0: never."),
    ("connection.failed.authentication.delay.ms", _I, "100", _NATURAL, _RO, "Time before a refused client is told."),
    ("sasl.oauthbearer.jwks.endpoint.url", _S, None, None, _RO, "Where the keys are that sign tokens: https or file."),
    ("sasl.oauthbearer.jwks.endpoint.refresh.ms", _L, "3600000", _POSITIVE, _RO, "Period of reading them again."),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", _L, "100", _POSITIVE, _RO, "First pause after they could not be read."),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", _L, "10000", _POSITIVE, _RO, "Longest such pause."),
    ("sasl.oauthbearer.expected.audience", _LIST, "", None, _RO, "Audiences of which a token must name one."),
    ("sasl.oauthbearer.expected.issuer", _S, None, None, _RO, "The issuer that a token must name."),
    ("sasl.oauthbearer.clock.skew.seconds", _I, "30", _NATURAL, _RO, "Difference of clocks that is allowed for."),
    ("sasl.oauthbearer.scope.claim.name", _S, "scope", None, _RO, "The claim with the scopes of a token."),
    ("sasl.oauthbearer.sub.claim.name", _S, "sub", None, _RO, "The claim with the name of its user."),
    ("ssl.keystore.location", _S, None, None, _ONE, "The node's key and certificates."),
    ("ssl.keystore.password", _P, None, None, _ONE, "Password of the key store."),
    ("ssl.keystore.type", _S, "JKS", None, _ONE, "Format of the key store."),
    ("ssl.keystore.key", _P, None, None, _ONE, "The private key itself."),
    ("ssl.keystore.certificate.chain", _P, None, None, _ONE, "The certificates themselves."),
    ("ssl.key.password", _P, None, None, _ONE, "Password of the private key."),
    ("ssl.truststore.location", _S, None, None, _ONE, "The trusted certificates."),
    ("ssl.truststore.password", _P, None, None, _ONE, "Password of the trust store."),
    ("ssl.truststore.type", _S, "JKS", None, _ONE, "Format of the trust store."),
    ("ssl.truststore.certificates", _P, None, None, _ONE, "The trusted certificates themselves."),
    ("ssl.client.auth", _S, "none", one_of("required", "requested", "none"), _ONE, "Whether clients show a certificate."),
    ("ssl.endpoint.identification.algorithm", _S, "https", None, _ONE, "How a host name is checked."),
    ("ssl.enabled.protocols", _LIST, "TLSv1.2,TLSv1.3", None, _ONE, "TLS versions."),
    ("ssl.protocol", _S, "TLSv1.3", None, _ONE, "TLS version."),
    ("ssl.cipher.suites", _LIST, "", None, _ONE, "TLS ciphers."),
    ("ssl.principal.mapping.rules", _S, "DEFAULT", None, _RO, "From the name in a certificate to that of a user."),
    ("ssl.allow.dn.changes", _B, "false", None, _RO, "Whether a new certificate may have another name."),
    ("ssl.allow.san.changes", _B, "false", None, _RO, "Whether a new certificate may lack alternative names of the old one."),
    ("delegation.token.secret.key", _P, None, None, _RO, "Key of delegation tokens."),
    ("delegation.token.max.lifetime.ms", _L, str(7 * _DAY_MS), _POSITIVE, _RO, "Longest life of a delegation token."),
    ("delegation.token.expiry.time.ms", _L, str(_DAY_MS), _POSITIVE, _RO, "Time after which a token must be renewed."),
    ("delegation.token.expiry.check.interval.ms", _L, str(_HOUR_MS), _POSITIVE, _RO, "Period of removing expired tokens."),
)

_OURS: tuple[_Row, ...] = (
    (
        "org.apache.kafka.sasl.oauthbearer.allowed.urls",
        _LIST,
        None,
        None,
        _RO,
        "The only URLs that sasl.oauthbearer.jwks.endpoint.url may have.",
    ),
    ("kraftlite.metrics.port", _I, None, _PORT, _RO, "Port of the Prometheus page; none if unset, 0 picks a free one."),
    ("kraftlite.metrics.partitions.max", _I, "2000", _NATURAL, _RO, "Replicas of a broker with series of their own there."),
    ("kraftlite.metrics.client.series.max", _I, "10000", _NATURAL, _RO, "Series of clients' own metrics there."),
    ("kraftlite.ssl.crl.location", _S, None, None, _RO, "File with lists of revoked certificates in PEM; none if unset."),
    ("kraftlite.metrics.host", _S, "127.0.0.1", None, _RO, "Address of the Prometheus page; 0.0.0.0: all."),
    ("kraftlite.log.level", _S, "info", one_of("debug", "info", "warning", "error"), _RO, "The least level that is logged."),
    ("kraftlite.log.format", _S, "auto", one_of("auto", "json", "text"), _RO, "auto: text on a terminal, else JSON."),
    ("kraftlite.trace.enable", _B, "true", None, _RO, "Whether the trace is kept in a file for tools."),
    ("kraftlite.trace.file", _S, None, None, _RO, "That file; kraftlite-trace.jsonl beside the metadata log if unset."),
    ("kraftlite.trace.max.bytes", _L, str(32 * MIB), at_least(64 * KIB), _RO, "Its size at which the older half goes."),
    ("kraftlite.faults.enable", _B, "false", None, _RO, "Whether the node may be told to cause faults to itself, for tests."),
    ("kraftlite.faults.ledger", _S, None, None, _RO, "A file to which the node appends the ends of its faults; none if unset."),
    ("kraftlite.event.loop", _S, "auto", one_of("auto", "asyncio", "uvloop"), _RO, "auto: uvloop where it is installed."),
    ("kraftlite.malloc.tuning", _B, "true", None, _RO, "Whether freed memory stays with the process (glibc)."),
)


def _rows() -> Iterator[ConfigKey]:
    for name, kind, default, allowed, dynamic, doc in (
        *_NODE,
        *_QUORUM,
        *_BROKER,
        *_LOG,
        *_NETWORK,
        *_GROUPS,
        *_SECURITY,
        *_OURS,
    ):
        yield ConfigKey(
            name=name,
            type=kind,
            default=default,
            doc=doc,
            allowed=allowed,
            dynamic=dynamic,
            sensitive=kind is ConfigType.PASSWORD,
        )


BROKER_CONFIGS: Final[Mapping[str, ConfigKey]] = by_name(_rows())

_SYNONYMS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "retention.ms": (("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", _HOUR_MS)),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
}


_MECHANISMS: Final = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "gssapi")


def value_of(values: Mapping[str, str], name: str) -> Any:
    """Parse what `values` say of a key, or else its default; None when it has neither. Raises ValueError naming the key, its
    value and what is allowed."""
    key = BROKER_CONFIGS[name]
    text = values.get(name, key.default)
    return None if text is None else key.parse(text)


def topic_synonyms(topic_key: str) -> tuple[tuple[str, int], ...]:
    """The broker keys that supply a topic key's default, strongest first, each with the factor to its unit."""
    if topic_key in _SYNONYMS:
        return _SYNONYMS[topic_key]
    server_key = TOPIC_CONFIGS[topic_key].server_key
    return () if server_key is None else ((server_key, 1),)


def broker_synonyms(name: str) -> tuple[str, ...]:
    """All broker keys that say the same as this one in some unit, strongest first: `log.roll.ms`, then `log.roll.hours`."""
    groups = (tuple(key for key, _factor in synonyms) for synonyms in _SYNONYMS.values())
    return next((names for names in groups if name in names), (name,))


def scaled(text: str, factor: int) -> str:
    """A synonym's value in the topic key's unit. A negative number means "no limit" in every unit."""
    if factor == 1:
        return text
    value = int(text)
    return str(value if value < 0 else value * factor)


def topic_defaults(broker_values: Mapping[str, str]) -> dict[str, str]:
    """Return what a broker's own configuration says for each topic key; a key about which it says nothing is left out (CM-49)."""
    found: dict[str, str] = {}
    for name in TOPIC_CONFIGS:
        for server_key, factor in topic_synonyms(name):
            if server_key in broker_values:
                found[name] = scaled(broker_values[server_key], factor)
                break
    return found


def broker_key_of(name: str) -> ConfigKey | None:
    """The definition of a broker key; `listener.name.<x>.<key>` and `listener.name.<x>.<mechanism>.<key>` have that of
    `<key>`."""
    if name.startswith("listener.name."):
        rest = name.split(".", 3)
        if len(rest) < 4:
            return None
        mechanism, _, key = rest[3].partition(".")
        return BROKER_CONFIGS.get(rest[3]) or (BROKER_CONFIGS.get(key) if mechanism in _MECHANISMS else None)
    return BROKER_CONFIGS.get(name)


def login_keys(changed: Iterable[str], listeners: Iterable[str]) -> list[str]:
    """Those of the keys that say how clients log in at one of these listeners. While a listener is open they are fixed, as in
    Kafka (CB-06)."""
    names = {name.lower() for name in listeners}
    found = []
    for key in sorted(changed):
        if key.startswith("listener.name."):
            listener, _, rest = key.removeprefix("listener.name.").partition(".")
            if listener in names and ".sasl." in f".{rest}":
                found.append(key)
    return found
