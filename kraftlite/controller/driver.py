"""The controller's shell: RPC handlers, raft callbacks and timers become events of the core, and its answers become responses.

Source: Kafka's QuorumController; CE-01, CE-06, CE-25, CE-31.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from kraftlite.controller.activation import bootstrap_level
from kraftlite.controller.authorization_driver import guarded
from kraftlite.controller.config import ControllerConfig
from kraftlite.controller.core import ControllerCore
from kraftlite.controller.events import Operation, R
from kraftlite.controller.metrics import ControllerMetrics
from kraftlite.controller.mutation_quotas import MutationQuota, MutationQuotas
from kraftlite.controller.policies import Verdicts
from kraftlite.controller.registration import ControllerRegistrar
from kraftlite.controller.results import ControllerResult
from kraftlite.controller.turns import Steps
from kraftlite.metadata.records import MetadataRecord
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.messages import acls, methods, security
from kraftlite.model.messages import controller as m
from kraftlite.model.messages import tokens as t
from kraftlite.model.policy import PolicyKind, PolicyQuestion
from kraftlite.raft.client import CommittedBatch, LeaderAndEpoch, LoadedSnapshot, RaftClient
from kraftlite.runtime.ports import Handlers, Ports, TimerHandle, route
from kraftlite.security.gate import Gate

STALL_MS: Final = 100
"""A timer that fires this much too late says that this node's loop stood still meanwhile."""


class Policies(Protocol):
    """The policies of a node (CM-65)."""

    def has(self, kind: PolicyKind) -> bool:
        """Return whether there is a policy that is asked such questions."""
        ...

    async def judge(self, questions: Sequence[PolicyQuestion], timeout_ms: int) -> list[ApiError | None]:
        """Ask: for each question None, or the refusal. Raises ApiError when there is no verdict in time."""
        ...


class ControllerDriver:
    """Runs one controller. `handlers()` serves every method of service "Controller"; `handle_*` are raft's callbacks.

    A handler raises ApiError: NOT_CONTROLLER when this node is not active, REQUEST_TIMED_OUT when the answer did not become
    durable within the request's time (the change may still happen), otherwise what the operation refuses.
    """

    def __init__(
        self,
        ports: Ports,
        config: ControllerConfig,
        raft: RaftClient,
        bootstrap: Sequence[MetadataRecord] | None,
        policies: Policies | None = None,
        gate: Gate | None = None,
    ) -> None:
        """`gate`: decides what clients may do; None: everything."""
        self._ports = ports
        self._gate = gate
        self._policies = policies
        self._config = config
        self._raft = raft
        self._bootstrap = bootstrap
        self.core = ControllerCore(config, raft, bootstrap, ports.entropy, ports.tracer)
        self.core.metrics.clock_us = ports.clock.now_us
        self.core.metrics.wall_ms = ports.clock.wall_ms
        self.mutations = MutationQuotas(config.mutation_windows, self.core.state.quotas.quotas)
        self._timer: TimerHandle | None = None
        self._timer_due_ms: int | None = None
        self._stopped = False
        self.registrar = ControllerRegistrar(ports, config, raft, self._register_self)

    async def start(self) -> None:
        """Raises Fault when there is no bootstrap metadata: the node was not formatted (CE-14)."""
        bootstrap_level(self._bootstrap)
        self._raft.register(self)
        self.registrar.start()

    async def stop(self) -> None:
        self._stopped = True
        self.registrar.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.core.close(self._ports.clock.now_ms())

    @property
    def active(self) -> bool:
        return self.core.active

    @property
    def metrics(self) -> ControllerMetrics:
        return self.core.metrics

    # --- RaftListener

    def holds_back(self) -> bool:
        return False

    def handle_commit(self, batches: Sequence[CommittedBatch]) -> None:
        self.core.on_commit(tuple(batches), self._ports.clock.now_ms())
        self._wake()

    def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> None:
        # The metadata snapshot is readable only during this call; the event runs later.
        batches = tuple(snapshot.batches()) if snapshot.snapshot_id.offset > 0 else ()
        self.core.on_load_snapshot(snapshot.snapshot_id.offset, snapshot.snapshot_id.epoch, batches, self._ports.clock.now_ms())
        self._wake()

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.core.on_leader_change(leader, self._ports.clock.now_ms())
        self._wake()

    # --- the loop: runs whenever something is due, never concurrently with itself

    def _wake(self) -> None:
        self._arm(self._ports.clock.now_ms())

    def _arm(self, due_ms: int) -> None:
        if self._stopped or (self._timer_due_ms is not None and self._timer_due_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = due_ms
        delay_ms = max(0, due_ms - self._ports.clock.now_ms())
        self._timer = self._ports.clock.call_later(delay_ms, self._pump)

    def _pump(self) -> None:
        due_ms, self._timer, self._timer_due_ms = self._timer_due_ms, None, None
        if self._stopped:
            return
        now_ms = self._ports.clock.now_ms()
        tracker = self.core.state.cluster.tracker
        if due_ms is not None and now_ms - due_ms > STALL_MS and tracker is not None:
            # The loop stood still (a paused process, a suspended machine): heartbeats wait in the sockets (CE-25).
            tracker.excuse(now_ms - due_ms, now_ms)
        try:
            more = self.core.step(now_ms, limit=100)
        except Exception as error:  # noqa: BLE001 - the top of the controller's loop: the node classifies
            self._stopped = True
            self._ports.fault(error, "controller")
            return
        if more:
            self._wake()
            return
        deadline_ms = self.core.next_deadline_ms()
        if deadline_ms is not None:
            self._arm(max(deadline_ms, now_ms + 1))

    # --- submitting

    async def _submit(
        self,
        name: str,
        operation: Operation[R],
        timeout_ms: int,
        *,
        after: Callable[[int, int], None] | None = None,
        on_timeout: Callable[[], None] | None = None,
    ) -> R:
        if self._stopped:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "The controller is shutting down.")
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        def done(outcome: R | ApiError) -> None:
            if future.done():
                return
            if isinstance(outcome, ApiError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        def expired() -> None:
            done(ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{name} was not committed within {timeout_ms} ms."))

        now_ms = self._ports.clock.now_ms()
        timer = self._ports.clock.call_later(timeout_ms, expired)
        self.core.submit(name, operation, done, now_ms, deadline_ms=now_ms + timeout_ms, after=after, on_timeout=on_timeout)
        self._wake()
        try:
            return await future
        finally:
            timer.cancel()

    async def _judged(self, name: str, operation: Callable[[Verdicts | None], Steps[ControllerResult[R]]], timeout_ms: int) -> R:
        """Submit an operation that policies have a say in: again, for as long as a verdict is missing, until the time is over."""
        if self._policies is None:
            return await self._submit(name, lambda _now: operation(None), timeout_ms)
        verdicts, until_ms = Verdicts(self._policies.has), self._ports.clock.now_ms() + timeout_ms
        while True:
            left_ms = max(0, until_ms - self._ports.clock.now_ms())
            response = await self._submit(name, lambda _now: operation(verdicts), left_ms)
            if not verdicts.missing:
                return response
            questions = tuple(verdicts.missing)
            verdicts.add(questions, await self._policies.judge(questions, max(0, until_ms - self._ports.clock.now_ms())))

    # --- handlers

    def handlers(self) -> Handlers:
        """Every method of service "Controller", as clients and nodes may call it."""
        handlers = dict(
            (
                route(methods.REGISTER_BROKER, self._register_broker),
                route(methods.BROKER_HEARTBEAT, self._broker_heartbeat),
                route(methods.UNREGISTER_BROKER, self._unregister_broker),
                route(methods.REGISTER_CONTROLLER, self._register_controller),
                route(methods.ALTER_PARTITION, self._alter_partition),
                route(methods.ASSIGN_REPLICAS_TO_DIRS, self._assign_replicas_to_dirs),
                route(methods.ELECT_LEADERS, self._elect_leaders),
                route(methods.ALLOCATE_PRODUCER_IDS, self._allocate_producer_ids),
                route(methods.CREATE_TOPICS, self._create_topics),
                route(methods.DELETE_TOPICS, self._delete_topics),
                route(methods.CREATE_PARTITIONS, self._create_partitions),
                route(methods.INCREMENTAL_ALTER_CONFIGS, self._incremental_alter_configs),
                route(methods.ALTER_CONFIGS, self._alter_configs),
                route(methods.UPDATE_FEATURES, self._update_features),
                route(methods.ALTER_PARTITION_REASSIGNMENTS, self._alter_partition_reassignments),
                route(methods.LIST_PARTITION_REASSIGNMENTS, self._list_partition_reassignments),
                route(methods.ALTER_CLIENT_QUOTAS, self._alter_client_quotas),
                route(methods.ALTER_USER_SCRAM_CREDENTIALS, self._alter_user_scram_credentials),
                route(methods.CREATE_DELEGATION_TOKEN, self._create_delegation_token),
                route(methods.RENEW_DELEGATION_TOKEN, self._renew_delegation_token),
                route(methods.EXPIRE_DELEGATION_TOKEN, self._expire_delegation_token),
                route(methods.CREATE_ACLS, self._create_acls),
                route(methods.DELETE_ACLS, self._delete_acls),
            )
        )
        return guarded(handlers, self._gate, self.core.state.replication)

    async def _register_broker(self, request: m.BrokerRegistrationRequest) -> m.BrokerRegistrationResponse:
        state = self.core.state

        def operation(now_ms: int) -> Steps[ControllerResult[m.BrokerRegistrationResponse]]:
            return state.brokers.register(request, now_ms, self._raft.log_end_offset())

        def after(_last_offset: int, now_ms: int) -> None:
            registration = state.cluster.brokers[request.broker_id]
            state.cluster.live.tracker.touch(request.broker_id, registration.broker_epoch, now_ms)

        return await self._submit("register_broker", operation, self._config.request_timeout_ms, after=after)

    async def _broker_heartbeat(self, request: m.BrokerHeartbeatRequest) -> m.BrokerHeartbeatResponse:
        state = self.core.state
        registration = state.cluster.brokers.get(request.broker_id)
        known = registration is not None and registration.broker_epoch == request.broker_epoch
        if state.cluster.tracker is not None and known:
            # Before queueing: a backlog must not make healthy brokers look dead (CE-25).
            state.cluster.tracker.touch(request.broker_id, request.broker_epoch, self._ports.clock.now_ms())

        def on_timeout() -> None:
            self.core.metrics.timed_out_broker_heartbeat_count += 1
            state.brokers.expired_heartbeat(request)

        return await self._submit(
            "broker_heartbeat",
            lambda _now: state.brokers.heartbeat(request),
            self._config.heartbeat_timeout_ms,
            after=lambda last_offset, _now: state.brokers.after_heartbeat(request, last_offset),
            on_timeout=on_timeout,
        )

    async def _unregister_broker(self, request: m.UnregisterBrokerRequest) -> m.Empty:
        elections = self.core.state.elections
        return await self._submit("unregister_broker", lambda _now: elections.unregister(request.broker_id), request.timeout_ms)

    async def _register_controller(self, request: m.ControllerRegistrationRequest) -> m.Empty:
        cluster = self.core.state.cluster
        return await self._submit(
            "register_controller", lambda _now: cluster.register_controller(request), self._config.request_timeout_ms
        )

    async def _register_self(self, request: m.ControllerRegistrationRequest) -> None:
        await self._register_controller(request)

    async def _alter_partition(self, request: m.AlterPartitionRequest) -> m.AlterPartitionResponse:
        if not request.partitions:
            return m.AlterPartitionResponse(partitions=())
        isr = self.core.state.isr
        return await self._submit("alter_partition", lambda _now: isr.alter(request), self._config.request_timeout_ms)

    async def _assign_replicas_to_dirs(self, request: m.AssignReplicasToDirsRequest) -> m.AssignReplicasToDirsResponse:
        directories = self.core.state.directories
        return await self._submit(
            "assign_replicas_to_dirs", lambda _now: directories.assign(request), self._config.request_timeout_ms
        )

    async def _elect_leaders(self, request: m.ElectLeadersRequest) -> m.ElectLeadersResponse:
        if request.partitions is not None and not request.partitions:
            return m.ElectLeadersResponse(results=())
        elections = self.core.state.elections
        return await self._submit("elect_leaders", lambda _now: elections.elect(request), request.timeout_ms)

    async def _allocate_producer_ids(self, request: m.AllocateProducerIdsRequest) -> m.AllocateProducerIdsResponse:
        producer_ids = self.core.state.producer_ids
        return await self._submit(
            "allocate_producer_ids", lambda _now: producer_ids.allocate(request), self._config.request_timeout_ms
        )

    async def _create_topics(self, request: m.CreateTopicsRequest) -> m.CreateTopicsResponse:
        if not request.topics:
            return m.CreateTopicsResponse(topics=())
        topics = self.core.state.topics
        return await self._judged(
            "create_topics", lambda verdicts: topics.create(request, verdicts, self._quota_of(request)), request.timeout_ms
        )

    async def _delete_topics(self, request: m.DeleteTopicsRequest) -> m.DeleteTopicsResponse:
        if not request.topics:
            return m.DeleteTopicsResponse(topics=())
        topics = self.core.state.topics
        return await self._submit(
            "delete_topics", lambda _now: topics.delete(request, self._quota_of(request)), request.timeout_ms
        )

    async def _create_partitions(self, request: m.CreatePartitionsRequest) -> m.CreatePartitionsResponse:
        if not request.topics:
            return m.CreatePartitionsResponse(topics=())
        topics = self.core.state.topics
        return await self._submit(
            "create_partitions", lambda _now: topics.create_partitions(request, self._quota_of(request)), request.timeout_ms
        )

    def _quota_of(
        self, request: m.CreateTopicsRequest | m.DeleteTopicsRequest | m.CreatePartitionsRequest
    ) -> MutationQuota | None:
        """The quota at the time at which the request is decided."""
        return self.mutations.quota_for(request.quota, self._ports.clock.now_ms())

    async def _incremental_alter_configs(self, request: m.IncrementalAlterConfigsRequest) -> m.AlterConfigsResponse:
        if not request.resources:
            return m.AlterConfigsResponse(resources=())
        configs = self.core.state.configs
        return await self._judged(
            "incremental_alter_configs", lambda verdicts: configs.incremental_alter(request, verdicts), request.timeout_ms
        )

    async def _alter_configs(self, request: m.AlterConfigsRequest) -> m.AlterConfigsResponse:
        if not request.resources:
            return m.AlterConfigsResponse(resources=())
        configs = self.core.state.configs
        return await self._judged("alter_configs", lambda verdicts: configs.legacy_alter(request, verdicts), request.timeout_ms)

    async def _update_features(self, request: m.UpdateFeaturesRequest) -> m.UpdateFeaturesResponse:
        if not request.updates:
            return m.UpdateFeaturesResponse(results=())
        feature_control = self.core.state.features
        return await self._submit("update_features", lambda _now: feature_control.update(request), request.timeout_ms)

    async def _alter_partition_reassignments(
        self, request: m.AlterPartitionReassignmentsRequest
    ) -> m.AlterPartitionReassignmentsResponse:
        if not request.partitions:
            return m.AlterPartitionReassignmentsResponse(results=())
        moves = self.core.state.reassignments
        return await self._submit("alter_partition_reassignments", lambda _now: moves.alter(request), request.timeout_ms)

    async def _list_partition_reassignments(
        self, request: m.ListPartitionReassignmentsRequest
    ) -> m.ListPartitionReassignmentsResponse:
        moves = self.core.state.reassignments
        return await self._submit("list_partition_reassignments", lambda _now: moves.list(request), request.timeout_ms)

    async def _alter_client_quotas(self, request: security.AlterClientQuotasRequest) -> security.AlterClientQuotasResponse:
        if not request.entries:
            return security.AlterClientQuotasResponse(entries=())
        quotas = self.core.state.quotas
        return await self._submit("alter_client_quotas", lambda _now: quotas.alter(request), request.timeout_ms)

    async def _create_delegation_token(self, request: t.CreateDelegationTokenRequest) -> t.CreateDelegationTokenResponse:
        tokens, wall_ms = self.core.state.tokens, self._ports.clock.wall_ms
        return await self._submit("create_delegation_token", lambda _now: tokens.create(request, wall_ms()), request.timeout_ms)

    async def _renew_delegation_token(self, request: t.RenewDelegationTokenRequest) -> t.ChangedDelegationTokenResponse:
        tokens, wall_ms = self.core.state.tokens, self._ports.clock.wall_ms
        return await self._submit("renew_delegation_token", lambda _now: tokens.renew(request, wall_ms()), request.timeout_ms)

    async def _expire_delegation_token(self, request: t.ExpireDelegationTokenRequest) -> t.ChangedDelegationTokenResponse:
        tokens, wall_ms = self.core.state.tokens, self._ports.clock.wall_ms
        return await self._submit("expire_delegation_token", lambda _now: tokens.expire(request, wall_ms()), request.timeout_ms)

    async def _alter_user_scram_credentials(
        self, request: security.AlterUserScramCredentialsRequest
    ) -> security.AlterUserScramCredentialsResponse:
        scram = self.core.state.scram
        return await self._submit("alter_user_scram_credentials", lambda _now: scram.alter(request), request.timeout_ms)

    async def _create_acls(self, request: acls.CreateAclsRequest) -> acls.CreateAclsResponse:
        control = self.core.state.acls
        return await self._submit("create_acls", lambda _now: control.create(request), request.timeout_ms)

    async def _delete_acls(self, request: acls.DeleteAclsRequest) -> acls.DeleteAclsResponse:
        control = self.core.state.acls
        return await self._submit("delete_acls", lambda _now: control.delete(request), request.timeout_ms)
