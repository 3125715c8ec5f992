"""The nodes' wire: gRPC transport, and the codec between message dataclasses and protobuf. The only importer of grpc.

`transport.GrpcTransport` implements the port `Transport`. Callers and handlers see dataclasses and `ApiError`; nothing of gRPC
or protobuf leaves this package.

    transport.serve(endpoint, handlers)             # {Method: async handler}, as `runtime.ports.route` makes it
    response = await transport.call(peer, method, request, timeout_ms)

| a call ends in | when |
|---|---|
| the response | the handler returned one |
| `ApiError` | the handler raised it: an expected refusal |
| `TransportError` | the peer was not reached, was silent, or its handler broke; the peer may or may not have acted |

| module | its part |
|---|---|
| `client` | one channel per peer; unary calls; one `HotStream` per hot method, with correlation ids |
| `server` | unary handlers and streams; one task per request, so that a long poll holds up nobody |
| `codec` | dataclass to protobuf and back; frames of hot methods, with raw record bytes (docs/adr/0003) |
| `relay` | carries connections that somebody else has accepted to a server (docs/adr/0016) |
| `addresses`, `options` | resolving and holding an address before it is served; keepalive and sizes of messages |

A hot call, in outline:

    head, payload = codec.split(request)            # the payload is not copied
    stream.write(frame(correlation_id, head, payload))
    waiting[correlation_id] = future
    ...                                             # the reader of the stream, for each frame of the peer
    waiting.pop(correlation_id).set_result(codec.join(head, payload))
    # a stream that dies fails all calls that wait on it

A lost answer is never asked for again here: retries belong to the caller, who knows whether the request may run twice. Every
message is checked where it enters (`model/messages/bounds`), before a handler sees it. Outstanding calls, their bytes and the
answers that a peer does not read are bounded. A Fault in a handler goes to `Ports.fault`; any other unexpected exception costs
that request alone.
"""
