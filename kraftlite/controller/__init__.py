"""The KRaft controller: a replicated state machine over the metadata log, and the decisions that write that log.

`core.ControllerCore` is one controller, active or standby. It is single-threaded and synchronous: events are submitted,
`step(limit)` runs some of them, and each answers its caller by a callback. `driver.ControllerDriver` turns calls between nodes,
raft's callbacks and timers into events, and answers into responses.

| event (`events`) | who submits it | what it does |
|---|---|---|
| `Write` | a call between nodes, a periodic task | computes records and a response; answers at the stable offset |
| `Read` | a call that changes nothing | reads the state at the stable offset; answers at once |
| `Internal` | raft: committed batches, a snapshot, another leader | replays, loads, claims or renounces leadership |

What happens to a `Write`:

    result = event.operation(now_ms)                # a *_control manager: records and a response; state is not changed
    last = raft.prepare_append(claim_epoch, batch, encoded)    # staged
    for offset, record in enumerate(batch, base_offset):
        state.replay(record, offset)                # the only way in which state changes; a failure here is a Fault
    raft.schedule_prepared_append()                 # now they may leave
    deferred.add(last, answer)                      # given when they are committed and no metadata transaction is open below
    # later, in an Internal event, when raft hands over what is committed:
    offsets.handle_commit(last_offset, epoch)       # moves the stable offset
    deferred.complete_up_to(offsets.stable_offset)

A standby does the replay alone, when records are committed. A controller that loses leadership reverts its timeline to what is
committed and fails every answer that waits with NOT_CONTROLLER.

| module | its part |
|---|---|
| `queue`, `turns`, `periodic` | the order of events; turns for an event with many elements; tasks by the clock |
| `state`, `topics_state`, `offset_control` | all control managers on one timeline; topics and partitions; the three offsets |
| `topic_control`, `election_control`, `isr_control`, `reassignment_control` | what happens to topics and partitions |
| `placement`, `partition_change` | where new replicas go; the record of one change of a partition |
| `cluster_control`, `broker_control`, `heartbeats`, `registration` | registrations, sessions, fencing, controlled shutdown |
| `config_`, `feature_`, `quota_`, `scram_` and `producer_id_control` | one kind of record each |
| `activation`, `record_trace`, `metrics`, `describe` | the first records of a new cluster; what the trace and the metrics tell |

An operation never changes state, and a record that cannot be replayed never leaves this node. The controller never calls a
broker: brokers ask it by heartbeats and calls, and learn its decisions from the metadata log. It never waits. The behaviours
are CE, TL and CM of docs/spec/controller.md.
"""
