"""Kafka's client protocol at the edge: frames, codecs, and the APIs that a broker offers. Nothing below this knows the wire.

A request goes through these hands:

    listener.KafkaListener                          # accepts, bounds connections per address, closes idle ones
      frames.Connection.buffer_updated()            # cuts whole requests out of the receive buffer; nothing awaits
        turns, budgets                              # whose turn it is; memory for partial requests
          apis.KafkaApis.handle_request(frame)      # reads the header, finds the Api by key and version
            Api.handle(Call)                        # decodes, and calls a function of broker/handlers with domain types
          call.send(parts)                          # now, or later from a task or a callback
      frames: the slot is filled                    # answers leave in the order of the requests
        outbound                                    # records that lie in files are read slice by slice, as the socket takes them

| module | its part |
|---|---|
| `listener`, `frames`, `slots`, `sockets` | connections, requests and answers in order |
| `shared_port`, `controller_apis` | the listener of a controller, on the port that nodes use, too; the table of what it offers |
| `auth`, `jwks_driver`, `token_credentials` | SASL, before anything else is served; keys that sign tokens; delegation tokens |
| `inbound`, `outbound`, `budgets`, `share`, `turns`, `tuning` | buffers, memory and the loop's time |
| `apis/` | one module per family: Kafka's messages to and from domain types; the table that ApiVersions shows |
| `hot_codec`, `fetch_codec`, `list_offsets_codec`, `metadata_codec`, `api_versions_codec` | codecs of our own |
| `operations` | the bits of authorized operations |

All other messages go through kio's schemas (`kraftlite.protocol`, docs/adr/0010).

| a request that | is answered |
|---|---|
| is refused by a handler (`ApiError`) | with Kafka's code, in its place in the response |
| ends in an unexpected exception | UNKNOWN_SERVER_ERROR if the response has a place for it, else by closing the connection |
| violates the protocol (`ProtocolViolation`) | by closing the connection |
| meets a `Fault` | not at all: the node stops |

The receive buffer belongs to the connection. A view of a frame is valid only while the call that got it runs, unless the
connection leases the frame. No client can hold the loop: large requests are decoded in turns or on a thread, and everything
that a client chooses the size of is bounded (docs/ROBUSTNESS.md). Record batches are never unpacked here. The behaviours are CP
of docs/spec/protocol.md.
"""
