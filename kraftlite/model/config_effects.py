"""The effect of each of Kafka's broker and controller keys: applied, without effect, or refused because of that.

A key that closes, limits or protects and does nothing yet is refused when it is set to anything but its default: who sets it
relies on it. A key that only tunes machinery that is not there is taken, with one warning that lists all of them. A key of
`BROKER_CONFIGS` that no row here names is applied; tests hold that code reads it, and that each key of Kafka is in one class.
Source: Kafka 4.3's broker configuration reference for names and defaults; docs/DIFFERENCES.md shows this table; BL-29.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from kraftlite.model.broker_configs import BROKER_CONFIGS, broker_key_of
from kraftlite.model.shown import shown


class Effect(StrEnum):
    APPLIED = "applied"
    IN_PART = "in part"
    NONE = "no effect"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Rule:
    """The effect of some keys. `words`: for REFUSED keys, what is not supported and what to do; for the others, what happens
    instead.

    `dynamic`: the effect of setting it through the admin API, where it is another one. `title`: what the keys have in common.
    """

    effect: Effect
    title: str
    words: str
    dynamic: Effect | None = None


@dataclass(frozen=True, slots=True)
class KeyEffect:
    """A rule as it holds for one key. `default`: the text that says the same as leaving the key out; None: there is none."""

    rule: Rule
    default: str | None

    def departs(self, text: str) -> bool:
        """Return whether this value says anything else than leaving the key out would."""
        wanted, usual = _plain(text), _plain(self.default or "")
        if wanted == usual or not wanted:
            return False
        try:
            return float(wanted) != float(usual)
        except ValueError:
            return True


def _plain(text: str) -> str:
    """Reduce a value for comparison: no blanks around the items of a list, and no difference between TRUE and true."""
    plain = ",".join(item.strip() for item in text.split(","))
    return plain.lower() if plain.lower() in ("true", "false") else plain


APPLIED: Final = Rule(Effect.APPLIED, "applied", "")

_REFUSED: Final[tuple[tuple[str, str, str], ...]] = (
    (
        "SASL",
        "nodes do not log in to one another by SASL, and there is neither Kerberos nor a place for Java classes; remove it",
        """
        sasl.mechanism.inter.broker.protocol sasl.mechanism.controller.protocol
        sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
        sasl.kerberos.kinit.cmd=/usr/bin/kinit sasl.kerberos.min.time.before.relogin=60000
        sasl.kerberos.principal.to.local.rules=DEFAULT sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter=0.05
        sasl.kerberos.ticket.renew.window.factor=0.8 sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
        sasl.login.refresh.buffer.seconds=300 sasl.login.refresh.min.period.seconds=60 sasl.login.refresh.window.factor=0.8
        sasl.login.refresh.window.jitter=0.05 sasl.login.retry.backoff.max.ms=10000 sasl.login.retry.backoff.ms=100
        sasl.oauthbearer.assertion.algorithm=RS256 sasl.oauthbearer.assertion.claim.aud
        sasl.oauthbearer.assertion.claim.exp.seconds=300 sasl.oauthbearer.assertion.claim.iss
        sasl.oauthbearer.assertion.claim.jti.include=false sasl.oauthbearer.assertion.claim.nbf.seconds=60
        sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
        sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
        sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
        sasl.oauthbearer.jwt.retriever.class=org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
        sasl.oauthbearer.jwt.validator.class=org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
        sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url
        principal.builder.class=org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
        """,
    ),
    (
        "SSL",
        "TLS is OpenSSL's here, which has no plug-ins and no algorithms of Java; remove it",
        """
        ssl.engine.factory.class ssl.keymanager.algorithm=SunX509 ssl.provider ssl.secure.random.implementation
        ssl.trustmanager.algorithm=PKIX security.providers
        """,
    ),
    (
        "Delegation tokens",
        "it is called delegation.token.secret.key; remove it, and set that one",
        "delegation.token.master.key",
    ),
    (
        "Quotas",
        "quotas are set with kafka-configs, and Java classes cannot be loaded; remove it",
        "client.quota.callback.class",
    ),
    (
        "Tiered storage",
        "there is no tiered storage; remove it",
        """
        remote.log.storage.system.enable=false remote.log.storage.manager.class.name remote.log.storage.manager.class.path
        remote.log.storage.manager.impl.prefix=rsm.config. remote.log.metadata.manager.class.path
        remote.log.metadata.manager.class.name=org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
        remote.log.metadata.manager.impl.prefix=rlmm.config. remote.log.metadata.manager.listener.name
        remote.log.metadata.custom.metadata.max.bytes=128 remote.log.index.file.cache.total.size.bytes=1073741824
        remote.log.index.file.cache.ttl.ms=900000 remote.log.manager.copier.thread.pool.size=10
        remote.log.manager.copy.max.bytes.per.second=9223372036854775807 remote.log.manager.copy.quota.window.num=11
        remote.log.manager.copy.quota.window.size.seconds=1 remote.log.manager.expiration.thread.pool.size=10
        remote.log.manager.fetch.max.bytes.per.second=9223372036854775807 remote.log.manager.fetch.quota.window.num=11
        remote.log.manager.fetch.quota.window.size.seconds=1 remote.log.manager.follower.thread.pool.size=2
        remote.log.manager.task.interval.ms=30000 remote.log.manager.task.retry.backoff.max.ms=30000
        remote.log.manager.task.retry.backoff.ms=500 remote.log.manager.task.retry.jitter=0.2
        remote.log.manager.thread.pool.size=2 remote.log.reader.max.pending.tasks=100 remote.log.reader.threads=10
        remote.fetch.max.wait.ms=500 remote.list.offsets.request.timeout.ms=30000 follower.fetch.last.tiered.offset.enable=false
        """,
    ),
    (
        "References to secrets",
        "values are taken as they stand, references like ${file:path:key} are not resolved; remove it, and write the values",
        "config.providers",
    ),
    (
        "Encrypted passwords",
        "passwords are not encrypted, and Kafka 4 has no such key either; remove it",
        """
        password.encoder.secret password.encoder.old.secret password.encoder.keyfactory.algorithm
        password.encoder.cipher.algorithm password.encoder.key.length password.encoder.iterations
        """,
    ),
    (
        "Reporters of metrics",
        "Java classes cannot be loaded; remove it, and let Prometheus read kraftlite.metrics.port",
        "kafka.metrics.reporters",
    ),
)

TLS_OF_LISTENERS: Final = "TLS"
"""The title of the rule for keys that say how a listener speaks TLS."""
_TLS: Final = (
    TLS_OF_LISTENERS,
    "applied to every listener that speaks TLS, and to one alone as listener.name.NAME.ssl...",
    """
    ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.keystore.key ssl.keystore.certificate.chain
    ssl.key.password ssl.truststore.location ssl.truststore.password ssl.truststore.type ssl.truststore.certificates
    ssl.client.auth ssl.endpoint.identification.algorithm ssl.enabled.protocols ssl.cipher.suites ssl.allow.dn.changes
    ssl.allow.san.changes ssl.principal.mapping.rules
    """,
)

RELOADABLE: Final = frozenset(
    [
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
        "ssl.truststore.certificates",
    ]
)
"""Keys that may change while a node runs, for one listener each (KIP-226)."""

_NOT_LIVE: Final = (
    "Applied from the file only",
    "applied when the node starts; it cannot be changed while the node runs: set it in the file and restart",
    "log.cleaner.io.max.bytes.per.second",
)

_OF_OPENING: Final = (
    "Logins of a listener",
    "read when a listener opens: set it for one that is to be added, with listener.name.NAME before it, or in the file",
    "sasl.enabled.mechanisms sasl.jaas.config",
)

_TUNED_AT_START: Final = (
    "Tuned from the file only",
    "applied when the node starts; set through the admin API it is stored and not applied",
    """
    num.replica.fetchers num.recovery.threads.per.data.dir log.cleaner.dedupe.buffer.size log.cleaner.io.buffer.load.factor
    log.cleaner.backoff.ms
    """,
)

_IN_PART: Final[tuple[tuple[str, str, str], ...]] = (
    (
        "Listeners that open early",
        "listeners for nodes always open before the access control entries are known; those of a broker for clients never do",
        "early.start.listeners",
    ),
    (
        "Thread counts of the log cleaner",
        "one thread compacts; the number only says how large the key map must be",
        "log.cleaner.threads",
    ),
    (
        "Protocols of groups",
        "classic and consumer groups; streams and share groups are not offered",
        "group.coordinator.rebalance.protocols",
    ),
    (
        "Replica selector",
        "RackAwareReplicaSelector is followed; any other class, as none, reads from the leader",
        "replica.selector.class",
    ),
    (
        "Read sizes of the coordinators' topics",
        "at most 64 KiB are read at a time",
        "offsets.load.buffer.size transaction.state.log.load.buffer.size",
    ),
)

_NONE: Final[tuple[tuple[str, str, str], ...]] = (
    (
        "TLS version of Java's context",
        "ssl.enabled.protocols says which versions are spoken",
        "ssl.protocol",
    ),
    (
        "Threads",
        "a node has one event loop",
        """
        num.network.threads num.io.threads background.threads group.coordinator.threads=4 group.coordinator.background.threads=2
        share.coordinator.threads=1 num.replica.alter.log.dirs.threads
        """,
    ),
    (
        "Buffers and queues of Kafka's own",
        "there are no such buffers, the system's or gRPC's are used",
        """
        queued.max.requests socket.listen.backlog.size
        replica.socket.receive.buffer.bytes log.cleaner.io.buffer.size producer.purgatory.purge.interval.requests=1000
        fetch.purgatory.purge.interval.requests=1000 delete.records.purgatory.purge.interval.requests=1
        share.fetch.purgatory.purge.interval.requests=1000 group.coordinator.append.linger.ms=-1
        group.coordinator.cached.buffer.max.bytes=1048588 controller.quorum.fetch.snapshot.max.bytes
        controller.quorum.fetch.max.bytes=1048576 socket.connection.setup.timeout.ms=10000
        socket.connection.setup.timeout.max.ms=30000 controller.socket.timeout.ms=30000 log.preallocate
        """,
    ),
    (
        "Metrics",
        "see kraftlite.metrics.port",
        """
        metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
        kafka.metrics.polling.interval.secs=10 confluent.support.metrics.enable
        """,
    ),
    (
        "Two-phase commit",
        "the version of InitProducerId with which clients ask for it is not offered; nor does Kafka offer it by default",
        "transaction.two.phase.commit.enable=false",
    ),
    (
        "Share groups",
        "there are no share groups",
        """
        share.coordinator.state.topic.replication.factor share.coordinator.state.topic.min.isr
        share.coordinator.state.topic.num.partitions=50 share.coordinator.state.topic.segment.bytes=104857600
        share.coordinator.state.topic.compression.codec=0 share.coordinator.state.topic.prune.interval.ms=300000
        share.coordinator.append.linger.ms=-1 share.coordinator.cached.buffer.max.bytes=1048588
        share.coordinator.cold.partition.snapshot.interval.ms=300000 share.coordinator.load.buffer.size=5242880
        share.coordinator.snapshot.update.records.per.snapshot=500 share.coordinator.write.timeout.ms=5000
        group.share.assignment.interval.ms=1000 group.share.assignors=simple group.share.delivery.count.limit=5
        group.share.heartbeat.interval.ms=5000 group.share.initialize.retry.interval.ms=30000
        group.share.max.assignment.interval.ms=15000 group.share.max.delivery.count.limit=10
        group.share.max.heartbeat.interval.ms=15000 group.share.max.partition.max.record.locks=4000
        group.share.max.record.lock.duration.ms=60000 group.share.max.session.timeout.ms=60000
        group.share.max.share.sessions=2000 group.share.max.size=200 group.share.min.assignment.interval.ms=0
        group.share.min.delivery.count.limit=2 group.share.min.heartbeat.interval.ms=5000
        group.share.min.partition.max.record.locks=100 group.share.min.record.lock.duration.ms=15000
        group.share.min.session.timeout.ms=45000 group.share.partition.max.record.locks=2000
        group.share.persister.class.name=org.apache.kafka.server.share.persister.DefaultStatePersister
        group.share.record.lock.duration.ms=30000 group.share.session.timeout.ms=45000
        """,
    ),
    (
        "Streams groups",
        "there are no streams groups",
        """
        group.streams.assignment.interval.ms=1000 group.streams.heartbeat.interval.ms=5000
        group.streams.initial.rebalance.delay.ms=3000 group.streams.max.assignment.interval.ms=15000
        group.streams.max.heartbeat.interval.ms=15000 group.streams.max.session.timeout.ms=60000
        group.streams.max.size=2147483647 group.streams.max.standby.replicas=2 group.streams.min.assignment.interval.ms=0
        group.streams.min.heartbeat.interval.ms=5000 group.streams.min.session.timeout.ms=45000
        group.streams.num.standby.replicas=0 group.streams.session.timeout.ms=45000
        """,
    ),
    (
        "Local part of tiered logs",
        "there is no tiered storage, so all of a log is local",
        "log.local.retention.ms log.local.retention.bytes",
    ),
    (
        "Moved to the controller",
        "the controller decides when a broker may stop and puts any imbalance of leaders right",
        "controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms leader.imbalance.per.broker.percentage",
    ),
    (
        "Internal to Kafka",
        "for the developers of Apache Kafka",
        """
        unstable.feature.versions.enable unstable.api.versions.enable log.initial.task.delay.ms
        internal.metadata.delete.delay.millis=60000 internal.metadata.log.segment.bytes
        internal.metadata.max.batch.size.in.bytes=8388608
        """,
    ),
)

_FAMILIES: Final = (
    ("authorizer.", "Authorization"),
    ("sasl.", "SASL"),
    ("ssl.", "SSL"),
    ("delegation.token.", "Delegation tokens"),
    ("quota.", "Quotas"),
    ("client.quota.", "Quotas"),
    ("remote.log.", "Tiered storage"),
    ("rsm.config.", "Tiered storage"),
    ("rlmm.config.", "Tiered storage"),
    ("config.providers.", "References to secrets"),
    ("password.encoder.", "Encrypted passwords"),
)
"""Beginnings of keys that Kafka hands to plug-ins or that are misspelt; they close or protect like the rest of their family."""


def _rules() -> Iterator[tuple[Rule, str]]:
    for effect, rows in ((Effect.REFUSED, _REFUSED), (Effect.IN_PART, _IN_PART), (Effect.NONE, _NONE)):
        for title, words, names in rows:
            yield Rule(effect, title, words), names
    title, words, names = _TLS
    yield Rule(Effect.APPLIED, title, words), names
    for title, words, names in (_NOT_LIVE, _OF_OPENING):
        yield Rule(Effect.APPLIED, title, words, dynamic=Effect.REFUSED), names
    title, words, names = _TUNED_AT_START
    yield Rule(Effect.APPLIED, title, words, dynamic=Effect.NONE), names


def _effects() -> Iterator[tuple[str, KeyEffect]]:
    for rule, names in _rules():
        for item in names.split():
            name, _, default = item.partition("=")
            defined = BROKER_CONFIGS.get(name)
            usual = defined.default if defined is not None else None
            assert not (usual and default), f"{name} has two defaults"
            yield name, KeyEffect(rule, (default or None) if usual is None else usual)


def _table() -> Mapping[str, KeyEffect]:
    found: dict[str, KeyEffect] = {}
    for name, effect in _effects():
        assert name not in found, f"{name} is in two classes"
        found[name] = effect
    for name, key in BROKER_CONFIGS.items():
        found.setdefault(name, KeyEffect(APPLIED, key.default))
    return MappingProxyType(dict(sorted(found.items())))


EFFECTS: Final[Mapping[str, KeyEffect]] = _table()
"""Every key of Kafka 4.3's brokers and controllers, those of older releases that files still carry, and ours."""

_PER_LISTENER: Final = ("ssl.", "sasl.", "connections.max.reauth.ms", "connection.failed.authentication.delay.ms")
"""Beginnings of the keys that may be set for one listener alone."""
_BY_TITLE: Final = {effect.rule.title: effect.rule for effect in EFFECTS.values()}
LISTENER_KEYS: Final = frozenset({"max.connections", "max.connection.creation.rate"})
"""Keys that may be set for one listener, as `listener.name.<name>.<key>`."""
_OF_LISTENERS: Final = Rule(
    Effect.REFUSED,
    "Limits of one listener",
    "limits of single listeners are not applied; remove it, and set the key without listener.name, which holds for all of them",
)


_OF_AUTHORIZERS: Final = Rule(
    Effect.REFUSED, "Authorization", "it belongs to an authorizer that is not StandardAuthorizer; remove it"
)
_BY_TITLE[_OF_AUTHORIZERS.title] = _OF_AUTHORIZERS


def effect_of(name: str) -> KeyEffect | None:
    """Return the rule for this key, with `listener.name.<x>.` before it or not; None when nobody knows it."""
    found = EFFECTS.get(name)
    if found is not None:
        return found
    if name.startswith("listener.name."):
        return _listener_effect(name)
    title = next((title for beginning, title in _FAMILIES if name.startswith(beginning)), None)
    return None if title is None else KeyEffect(_BY_TITLE[title], None)


def _listener_effect(name: str) -> KeyEffect | None:
    """A limit that holds for all listeners is not taken for one alone, unless it is in `_PER_LISTENER`. A mechanism may be
    named before a SASL key (`listener.name.x.plain.sasl.jaas.config`)."""
    rest = name.split(".")[3:]
    if (key := ".".join(rest)) in LISTENER_KEYS:
        return EFFECTS[key]
    for begin in range(len(rest)):
        key = ".".join(rest[begin:])
        found = effect_of(key)
        if found is not None:
            if key.startswith(_PER_LISTENER):
                return found
            return KeyEffect(_OF_LISTENERS, found.default) if found.rule.effect in (Effect.APPLIED, Effect.IN_PART) else found
    return None


TOPIC_KEYS_WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "local.retention.ms": "there is no tiered storage, so all of a log is local",
    "local.retention.bytes": "there is no tiered storage, so all of a log is local",
    "remote.log.copy.disable": "there is no tiered storage",
    "remote.log.delete.on.disable": "there is no tiered storage",
    "preallocate": "files grow as they are written",
}
"""Keys of topics that are stored and do nothing; `remote.storage.enable` is refused."""


_SECRETS: Final = ("pass", "pasw", "pwd", "secret", "jaas", "credential", "scram", "token", "certificate")


def may_be_secret(name: str) -> bool:
    """Return whether the value of a key that nobody knows, of a node or of a client, must not be shown: by its words, as it may
    be the misspelt name of a password. A serializer of keys is a class."""
    lower = name.lower()
    secret = lower.endswith("key") or "key" in lower.split(".") or any(word in lower for word in _SECRETS)
    return secret and not lower.endswith("serializer")


def has_secret(value: str) -> bool:
    """Return whether a value must not be shown, whatever its name: the words of a login under a misspelt key."""
    lower = value.lower()
    return any(f"{word}=" in lower.replace(" ", "") for word in ("password", "secret")) or "private key-----" in lower


def is_sensitive(name: str) -> bool:
    """Return whether a key's value must not be shown: a password, or what may be one."""
    key = broker_key_of(name)
    return may_be_secret(name) if key is None else key.sensitive


def refusal(name: str, text: str) -> str | None:
    """Say why a node's file must not set this key to this value; None when it may."""
    found = effect_of(name)
    if found is None or found.rule.effect is not Effect.REFUSED or not found.departs(text):
        return None
    told = "[hidden]" if is_sensitive(name) else shown(text)
    return f"{name}={told}: {found.rule.words}"


_LOGINS: Final = (".sasl.enabled.mechanisms", ".sasl.jaas.config")


def dynamic_refusal(name: str, text: str) -> str | None:
    """The same for a value that is set while the node runs. How clients log in at a listener can be said before it is opened
    (CB-06); the node refuses it for one that is open."""
    found = effect_of(name)
    if name.startswith("listener.name.") and name.endswith(_LOGINS):
        return None
    if found is None or (found.rule.dynamic or found.rule.effect) is not Effect.REFUSED or not found.departs(text):
        return None
    return f"{name} would have no effect: {found.rule.words}"


def without_dynamic_effect(name: str) -> str | None:
    """Say why this key, set while the node runs, is stored and does nothing; None when it does something, or nobody knows."""
    found = effect_of(name)
    if found is None or (found.rule.dynamic or found.rule.effect) is not Effect.NONE:
        return None
    return found.rule.words


def logins_kept(keys: Iterable[str]) -> str:
    """Say why these `login_keys` cannot change."""
    return f"{', '.join(keys)}: the listener is open and keeps its logins; remove it first, or add another one"
