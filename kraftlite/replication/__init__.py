"""Data replication: leaders that count, followers that pull, and clients' produces and fetches.

`manager.ReplicaManager` is the whole for one broker. Metadata tells it who leads and who follows (`apply_delta`), clients'
handlers append and read through it, and other brokers fetch from it (`service`). All of it runs on the node's loop.

| object | kind | what it decides or does |
|---|---|---|
| `partition.Partition` | core: methods and observers | one replica: leads, follows or waits; appends; moves the HW |
| `leader.LeaderState`, `isr.IsrState`, `follower_progress` | core | who has what, who is in sync, the maximal ISR |
| `fetcher_core.FetcherCore` | core: `request()`, `handle_response()` | what a follower asks, and does with the answer |
| `fetcher_driver`, `fetcher_manager` | driver | sends what the core asks for; which partition is in which fetcher |
| `sessions.FetchServer`, `service.ReplicaService` | core, driver | what a follower has not been sent yet; its long poll |
| `alter_partition` | core and driver | asks the controller for ISR changes, one request at a time per broker |
| `produce`, `consume`, `delete_records` | core | the paths of client requests |
| `enrol_driver`, `markers` | driver, core | who begins a transaction in a partition, and how it ends there |
| `purgatory`, `waiting` | | requests that wait for the HW or for data, with deadlines |

A replicated append, in ten lines:

    produce: partition.append(batch)                # we lead, the ISR is large enough, producer and CRC are right
    partition: log.append_as_leader(batch)          # page cache; observers mark it dirty in the followers' sessions
    produce: purgatory waits for hw >= next_offset  # acks=all only
    fetcher_core of the follower: request()         # fetch offset = its own LEO: "I have everything below"
    sessions of the leader: collect()               # dirty partitions first; else the request is parked
    follower_state: append_fetched(), or truncate   # where its epochs diverge from the leader's
    sessions: the next fetch reports progress       # partition.follower_fetched(leo)
    partition: hw = min(LEO) over the maximal ISR   # committed members and those that are proposed
    purgatory: completes what waited                # the producer is answered

A follower that lags longer than `replica.lag.time.max.ms` is proposed for removal, one that has caught up for return; until the
controller has committed the smaller ISR, the HW waits for the old members too. An answer of the controller arrives as metadata
and as a response, in any order; the partition epoch says which is newer.

The package never talks to the controller but through the `ControllerChannel` port, never reads metadata but as images and
deltas, and never acknowledges a record below `min.insync.replicas`. Cores never wait. An exception in an append or in a
follower's progress is a Fault (docs/adr/0005). The behaviours are RP-01 to RP-43 of docs/spec/replication.md
and TP of docs/spec/transactions-partitions.md;
`Partition.check()` asserts the invariants of one replica.
"""
