"""The broker: its lifecycle at the controller, its log directories, and what the metadata log makes it do.

`server.BrokerServer` builds the parts and runs the sequences of start and stop.

    log_dirs.read_markers()                         # was the last stop a clean one?
    lifecycle.start(facts)                          # register; heartbeats from here on; the broker starts fenced
    await lifecycle.wait_caught_up()                # its metadata has reached its own registration
    loader.install_publishers([publisher])          # logs are opened and recovered, replicas lead and follow
    await listeners.open_replication(handlers)      # other brokers may fetch
    lifecycle.ready_to_unfence()
    await lifecycle.wait_unfenced()
    await publisher.wait_live()                     # and clients are told of this broker
    await listeners.open_clients()                  # clients are served
    ...
    lifecycle.begin_controlled_shutdown()           # the controller moves the leaderships away, then lets it go
    await lifecycle.wait_finished()                 # then listeners, replicas and logs are closed

`lifecycle_core` is a core: events in, actions out. `lifecycle_driver` sends what it asks for, one call at a time.

| event | action that may follow |
|---|---|
| `Start`, `ResendRegistration` | `SendRegistration` |
| `Registered`, `RegistrationFailed` | `SendHeartbeat`; `RetryRegistration`, `GiveUp` |
| `HeartbeatAnswered`, `HeartbeatFailed` | `FencedChanged`, `StateChanged`; the next `SendHeartbeat` |
| `ReadyToUnfence`, `DirectoryFailed` | an earlier `SendHeartbeat` that says so |
| `BeginControlledShutdown`, `BeginShutdown`, `Tick` | `StateChanged`, `SendHeartbeat`, `GiveUp` |

| module | its part |
|---|---|
| `publisher`, `dynamic_configs`, `metadata_cache` | acting on each new image; configs; answers about the cluster |
| `log_dirs`, `log_dirs_*`, `log_cleaner` | opening, refusing and setting aside logs; retention and compaction |
| `controller_channel` | calls to the active controller, whoever that is, with retries within their time |
| `handlers/` | the domain side of client requests, one module per family; `wire` adapts Kafka's messages to it |
| `transactions` | markers to the leaders of partitions, questions to the coordinators of transactions |
| `producer_ids`, `introspection` | blocks of producer ids; the state of the replicas, for tools |

A broker never changes metadata by itself: it asks the controller and waits for the log. It never serves a partition before the
metadata says so and its log is open. A damaged partition costs that partition, a failing disk its directory (docs/adr/0007).
The behaviours are BL of docs/spec/broker.md and ML-17 to ML-25 of docs/spec/metadata.md.
"""
