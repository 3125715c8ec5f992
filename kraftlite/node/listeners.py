"""The sockets of a node: which listener serves what."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraftlite.config.listener_settings import LISTENER_PREFIX
from kraftlite.config.live_listeners import is_for_clients
from kraftlite.config.server import ServerConfig
from kraftlite.model.broker_configs import BROKER_CONFIGS, connection_overrides, value_of
from kraftlite.model.ids import Endpoint
from kraftlite.model.messages.controller import ListenerInfo
from kraftlite.node.authorization import for_nodes
from kraftlite.node.client_listeners import ClientListeners
from kraftlite.quotas.rates import QuotaWindows
from kraftlite.rpc.addresses import resolve
from kraftlite.runtime.ports import Handlers, Ports, SharesPorts, TaskHandle
from kraftlite.runtime.trace.node import ListenerOpened
from kraftlite.wire.sockets import bound_socket

if TYPE_CHECKING:
    from kraftlite.broker.handlers.context import BrokerContext
    from kraftlite.node.controller_clients import ControllerClients
    from kraftlite.node.tls import NodeTls
    from kraftlite.security.gate import Gate
    from kraftlite.security.listener_sasl import ListenerSasl
    from kraftlite.tls.settings import TlsSettings
    from kraftlite.tls.source import TlsSource
    from kraftlite.wire.apis import KafkaApis
    from kraftlite.wire.apis.call import Api, Call
    from kraftlite.wire.doors import ConnectionRules, Doors
    from kraftlite.wire.listener import KafkaListener, ListenerConfig
    from kraftlite.wire.request_times import RequestTimes
    from kraftlite.wire.share import NodeShare
    from kraftlite.wire.shared_port import SharedPortListener

_MOST: Final = "max.connections"
_RATE: Final = "max.connection.creation.rate"


def import_client_side() -> None:
    """Everything that is imported late for the sake of nodes without clients."""
    import kraftlite.protocol.kio_codec
    import kraftlite.wire.apis
    import kraftlite.wire.listener  # noqa: F401


class NodeListeners:
    """Opens a node's listeners one by one, as its parts become ready. Implements `BrokerListeners`.

    All addresses are taken before the node says anything to anybody (`reserve`), and clients' listeners listen before it may lead
    (`prepare_clients`): what cannot be served must not be led.

    The controller listener serves the quorum, the controller and introspection to nodes, and Kafka's protocol to clients, on one
    port (ADR 16); the inter-broker listener serves replicas and introspection; every other listener speaks Kafka. Raises OSError
    when an address cannot be had.
    """

    def __init__(
        self, ports: Ports, config: ServerConfig, introspection: Handlers, *, serve_clients: bool, gate: Gate | None = None
    ) -> None:
        self._ports = ports
        self._config = config
        self._introspection = introspection
        self._gate = gate
        self._serve_clients = serve_clients
        self.clients = ClientListeners(ports, config, self, serves=serve_clients)
        self._context: BrokerContext | None = None
        self._controllers: list[SharedPortListener] = []
        self.share: NodeShare | None = None
        """The resources that the connections of all client listeners share; None before there is one."""
        self.tls: NodeTls | None = None
        """None: no listener speaks TLS, or there are no real sockets."""
        if config.tls and serve_clients:
            from kraftlite.node.tls import NodeTls

            self.tls = NodeTls(ports, config)
            if isinstance(ports.transport, SharesPorts):
                ports.transport.protect(self.tls.for_service)
        self._reserved: dict[str, socket.socket] = {}
        self._warming: TaskHandle | None = None
        self._held = (False, False)
        self._refused = False
        self._apis: list[KafkaApis] = []
        self._handle_of: Callable[[Api], Callable[[Call], None]] | None = None
        self._times: RequestTimes | None = None
        self._client_doors: Doors | None = None
        self._doors: list[Doors] = []
        """The limits of the connections of clients: those of each port that nodes share with them, and those of all listeners of
        the broker together."""
        self._ip_quota: Callable[[str], float | None] = lambda _address: None
        self._broker_values: Mapping[str, str] = {}
        """The values in force for the broker, since its first metadata; they are dynamic ones too."""

    def warm_up(self) -> None:
        """Import what clients' requests need, off the loop, while the node starts: the first request must not wait for it, and
        neither must a heartbeat behind that request."""
        if self._serve_clients and self._warming is None:
            tasks = self._ports.tasks
            self._warming = tasks.spawn(tasks.run_blocking(import_client_side), name="warm-up")

    async def reserve(self) -> None:
        """Raises OSError, naming the address, when one of them cannot be had."""
        for listener in self._config.listeners:
            if self._is_shared(listener) or self._is_protected(listener):
                host = (await resolve(Endpoint(listener.host, listener.port))).host if listener.host else ""
                self._reserved[listener.name] = bound_socket(host, listener.port)
            elif not is_for_clients(self._config, listener):
                await self._ports.transport.reserve(Endpoint(listener.host, listener.port))
            elif self._serve_clients:
                self._reserved[listener.name] = bound_socket(listener.host, listener.port)

    def release(self) -> None:
        """Give up the addresses that no listener has taken over."""
        for unused in self._reserved.values():
            unused.close()
        self._reserved.clear()

    def _is_shared(self, listener: ListenerInfo) -> bool:
        """Return whether nodes and clients share the port: where both come over real sockets."""
        real = self._serve_clients and isinstance(self._ports.transport, SharesPorts)
        return real and listener.name in self._config.controller_listener_names

    def _is_protected(self, listener: ListenerInfo) -> bool:
        """Return whether nodes reach it through TLS: where they come over real sockets."""
        real = self._serve_clients and isinstance(self._ports.transport, SharesPorts)
        return real and listener.security_protocol == "GRPC_TLS"

    async def open_controller(self, handlers: Handlers, clients: ControllerClients) -> None:
        for listener in self._config.listeners:
            if self._is_shared(listener):
                await self._share_port(listener, handlers, partial(self._apis_at_controller, clients, listener.name))
            elif listener.name in self._config.controller_listener_names:
                await self._serve(listener, handlers)

    async def _apis_at_controller(self, clients: ControllerClients, listener: str) -> KafkaApis:
        return self._intercepted(await clients.apis(listener))

    async def _share_port(
        self, listener: ListenerInfo, handlers: Handlers, load: Callable[[], Awaitable[KafkaApis]] | None
    ) -> None:
        """`load` None: nodes alone are served."""
        from kraftlite.wire.shared_port import SharedPortListener

        transport = self._ports.transport
        assert isinstance(transport, SharesPorts)
        wanted = Endpoint(listener.host, listener.port)
        tls = self.tls_of(listener.name)
        relay = await transport.serve_behind(wanted, self._for_nodes(handlers), authenticates=tls is not None)
        shared = SharedPortListener(
            self._ports,
            self._client_config(listener, self._config.sasl.get(listener.name)),
            load,
            relay.carry,
            self._node_share(),
            self._reserved.pop(listener.name),
            tls=tls,
            doors=self._new_doors(),
        )
        self._controllers.append(shared)
        bound = await shared.start()
        self._ports.tracer.emit(ListenerOpened(listener=listener.name, endpoint=str(Endpoint(listener.host, bound.port))))

    async def close_controller(self, grace_ms: int) -> None:
        controllers, self._controllers = self._controllers, []
        for shared in controllers:
            await shared.stop(grace_ms)

    def _node_share(self) -> NodeShare:
        from kraftlite.wire.share import NodeShare

        if self.share is None:
            limit = self._config.get_int("queued.max.request.bytes")
            self.share = NodeShare(self._ports.clock.now_ms, queued_max_request_bytes=limit)
        return self.share

    async def open_replication(self, handlers: Handlers) -> None:
        for listener in self._config.listeners:
            if listener.name == self._config.inter_broker_listener_name:
                if self._is_protected(listener):
                    await self._share_port(listener, handlers, None)
                else:
                    await self._serve(listener, handlers)

    async def prepare_clients(self, context: BrokerContext) -> None:
        """Accept connections of clients; whoever connects from here on waits for `open_clients`."""
        if self._warming is not None:
            await self._warming
        if self._serve_clients:
            self._client_doors = self._new_doors()
        self._context = context
        context.tls_problems = self._tls_problems
        context.listener_problems = self.clients.problems
        await self.clients.prepare(self._broker_values or self._config.values, self._reserved)

    async def open_clients(self) -> None:
        await self.clients.serve()

    async def close_clients(self, grace_ms: int) -> None:
        await self.clients.close(grace_ms)

    def on_advertised(self, tell: Callable[[tuple[ListenerInfo, ...]], None]) -> None:
        """Call `tell` with the listeners that the broker must register, now and whenever they change (CB-06)."""
        self.clients.advertise = tell

    def make(
        self, listener: ListenerInfo, sasl: ListenerSasl | None, sock: socket.socket | None, tls: TlsSource | None
    ) -> KafkaListener:
        """Raises nothing: it does not listen yet."""
        from kraftlite.wire.apis import KafkaApis
        from kraftlite.wire.listener import KafkaListener

        assert self._context is not None, "the broker has a context before it has listeners"
        apis = self._intercepted(KafkaApis(self._context, listener.name))
        config = self._client_config(listener, sasl)
        client = KafkaListener(self._ports, config, apis, self._node_share(), sock, tls, self._client_doors)
        client.hold(requests=self._held[0], responses=self._held[1])
        client.refuse(self._refused)
        return client

    def forget(self, client: KafkaListener) -> None:
        if self._client_doors is not None:
            self._client_doors.remove(client.door)
        if client.apis in self._apis:
            self._apis.remove(client.apis)

    def load_tls(self, listener: ListenerInfo, settings: TlsSettings) -> TlsSource:
        from kraftlite.node.tls import load_for

        return load_for(listener, settings)

    def tls_of(self, name: str) -> TlsSource | None:
        return None if self.tls is None else self.tls.source(name)

    def use_tls(self, listener: ListenerInfo, source: TlsSource | None) -> None:
        from kraftlite.node.tls import NodeTls

        if source is None:
            if self.tls is not None:
                self.tls.forget(listener.name)
            return
        if self.tls is None:
            self.tls = NodeTls(self._ports, self._config)
        self.tls.use(listener, source)

    def _tls_problems(self, values: Mapping[str, str], changed: frozenset[str]) -> list[str]:
        return [] if self.tls is None else self.tls.problems(values, changed, self.clients.leaving(values))

    def abort(self) -> None:
        """Cut the clients off as the death of the process would: their sockets are gone, unanswered. The other listeners are
        the transport's."""
        self.clients.abort()
        for shared in self._controllers:
            shared.abort()
        self.release()

    def hold_clients(self, *, requests: bool, responses: bool) -> None:
        """Hold clients' bytes, to inject a fault: see `KafkaListener.hold`. Holds for listeners that are opened later, too."""
        self._held = (requests, responses)
        for client in self.clients.opened.values():
            client.hold(requests=requests, responses=responses)

    def refuse_clients(self, refused: bool) -> None:
        """Cut clients off and refuse them, to inject a fault: see `KafkaListener.refuse`. Holds for later listeners, too."""
        self._refused = refused
        for client in self.clients.opened.values():
            client.refuse(refused)

    def intercept_apis(self, handle_of: Callable[[Api], Callable[[Call], None]] | None) -> None:
        """See `KafkaApis.intercept`. Holds for the APIs of all listeners, also of those that are opened later."""
        self._handle_of = handle_of
        for apis in self._apis:
            apis.intercept(handle_of)

    def _intercepted(self, apis: KafkaApis) -> KafkaApis:
        self._apis.append(apis)
        apis.times = self._times
        if self._handle_of is not None:
            apis.intercept(self._handle_of)
        return apis

    def update_broker_values(self, values: Mapping[str, str]) -> None:
        """Apply the limits of connections that may change while the node runs, to the listeners of clients (CB-05, CB-07)."""
        self._broker_values = values
        if self.tls is not None:
            self.tls.update(values, self.clients.leaving(values))
        for doors in self._doors:
            doors.update(self._rules())
        if self._config.is_broker:
            self.clients.update(values)

    def update_ip_quotas(self, quota: Callable[[str], float | None]) -> None:
        """Take over how many connections a second an address may make (KIP-612)."""
        self._ip_quota = quota
        for doors in self._doors:
            doors.ip_quota = quota

    def _new_doors(self) -> Doors:
        from kraftlite.wire.doors import Doors

        number = self._config.get_int
        windows = QuotaWindows(number("quota.window.num"), number("quota.window.size.seconds") * 1_000)
        doors = Doors(self._ports.clock, self._rules(), windows)
        doors.ip_quota = self._ip_quota
        self._doors.append(doors)
        return doors

    def _rules(self) -> ConnectionRules:
        from kraftlite.wire.doors import ConnectionRules

        values = {**self._config.values, **self._broker_values}

        def single(key: str) -> dict[str, int]:
            """The limits of single listeners, also of those that are to be opened."""
            ends = f".{key}"
            named = {it: text for it, text in values.items() if it.startswith(LISTENER_PREFIX) and it.endswith(ends)}
            return {
                it.removeprefix(LISTENER_PREFIX).removesuffix(ends).upper(): int(BROKER_CONFIGS[key].parse(text))
                for it, text in named.items()
            }

        return ConnectionRules(
            most=value_of(values, _MOST),
            most_per_ip=value_of(values, "max.connections.per.ip"),
            overrides=connection_overrides(value_of(values, "max.connections.per.ip.overrides")) or {},
            rate=value_of(values, _RATE),
            most_of=single(_MOST),
            rate_of=single(_RATE),
        )

    def measure_requests(self) -> RequestTimes:
        """Measure the requests of clients from now on, at all listeners. It costs each some two microseconds."""
        from kraftlite.wire.request_times import RequestTimes

        if self._times is None:
            self._times = RequestTimes()
            for apis in self._apis:
                apis.times = self._times
        return self._times

    @property
    def for_clients(self) -> Sequence[KafkaListener]:
        """The open listeners at which clients are served."""
        return [*self.clients.opened.values(), *self._controllers]

    def handshakes(self) -> tuple[int, int, int]:
        """Count the handshakes of TLS of all listeners: under way, done, and refused."""
        found = [client.handshakes for client in self.for_clients if client.handshakes is not None]
        return sum(map(len, found)), sum(it.done for it in found), sum(it.refused for it in found)

    @property
    def connection_count(self) -> int:
        return sum(client.connection_count for client in self.for_clients)

    def _for_nodes(self, handlers: Handlers) -> Handlers:
        return for_nodes({**handlers, **self._introspection}, self._gate)

    def authentications(self, outcome: str) -> int:
        """Count the authentications of clients with this outcome, a field of `AuthenticationCounts`, at all open listeners."""
        gates = (client.gate for client in self.for_clients)
        return sum(getattr(gate.counts, outcome) for gate in gates if gate is not None)

    async def _serve(self, listener: ListenerInfo, handlers: Handlers) -> None:
        wanted = Endpoint(listener.host, listener.port)
        bound = await self._ports.transport.serve(wanted, self._for_nodes(handlers))
        self._ports.tracer.emit(ListenerOpened(listener=listener.name, endpoint=str(bound)))

    def _client_config(self, listener: ListenerInfo, sasl: ListenerSasl | None) -> ListenerConfig:
        def setting(name: str) -> Any:
            return self._config.get(name)

        from kraftlite.wire.listener import ListenerConfig

        return ListenerConfig(
            name=listener.name,
            host=listener.host,
            port=listener.port,
            max_request_bytes=setting("socket.request.max.bytes"),
            max_idle_ms=setting("connections.max.idle.ms"),
            send_buffer_bytes=setting("socket.send.buffer.bytes"),
            receive_buffer_bytes=setting("socket.receive.buffer.bytes"),
            sasl=sasl,
        )
