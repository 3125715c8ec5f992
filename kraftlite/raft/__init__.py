"""The metadata quorum: Raft in which followers pull (KIP-595), with snapshots (KIP-630) and pre-vote (KIP-996).

`core.RaftCore` is the protocol of one node, voter or observer. It is synchronous: events go in, an output comes out.
`driver.RaftDriver` runs it over the node's ports and is the `client.RaftClient` that the controller and the metadata loader
know.

Events into `RaftCore.step(event, now_ms, wall_ms)`:

| event | meaning | what follows |
|---|---|---|
| `RequestReceived` | a peer asks (elections, fetches, changes of the voters) | a `Reply`, now or later |
| `ResponseReceived`, `RequestFailed` | the fate of an `OutboundRequest` | the next fetch, vote or role |
| `LogFlushed` | everything below `leo` is durable | a voter's next fetch; the leader's own count towards the HW |
| `AppendScheduled` | prepared records may go out | an append of one batch for each prepare |
| `ResignRequested`, `ShutdownRequested` | give up leadership; hand over and campaign no more | EndQuorumEpoch to the successors |
| `Tick` | `next_deadline_ms` was reached | elections, check-quorum, linger, retries |

The output has `requests`, `flush`, `replies` and `deliver`, to be performed in this order. Votes are durable, and the log is in
the page cache, when `step` returns; so requests and replies may leave at once, and whatever needs durability follows a
`LogFlushed`.

The driver's loop, in outline:

    output = core.step(event, clock.now_ms(), clock.wall_ms())
    for request in output.requests:                 # a task each: transport.call, then ResponseReceived or RequestFailed
        spawn(call(request))
    if output.flush:                                # one flush at a time covers all that was asked before it began
        spawn(log.flush, then step(LogFlushed(leo)))
    for reply in output.replies:                    # completes the peer's call
        waiting[reply.request_id].set_result(reply.response)
    if output.deliver:                              # `delivery.Delivery` hands committed batches to the listeners
        wake(delivery)
    arm_timer(core.next_deadline_ms())              # then step(Tick())

The parts of the core share a `context.RaftContext`: `elections` (voting and standing), `leadership` and `accumulator` (leading,
appending, the HW), `following` (fetching, truncating, downloading snapshots), `serving` (answering fetches), `metalog` (the log
with its snapshots), `quorum_state` (the durable vote). `damage` and `flush_mark` protect a metadata log that nobody else has.

A state machine above implements `client.RaftListener`: it gets committed batches in offset order, once each, or a snapshot to
start from, and every change of the leader. It must not block and must not call back.

The core never waits, reads a clock, draws entropy of its own, or sends anything; it never knows what a record means. An
exception in a step stops the node: `driver` hands it to `Ports.fault` and steps nothing any more (docs/adr/0005). The
behaviours are RF-01 to RF-61 of docs/spec/raft.md.
"""
