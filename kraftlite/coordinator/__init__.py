"""Consumer groups and their offsets: the core that decides, and the driver that keeps it in `__consumer_offsets`.

`coordinator.GroupCoordinator` is a broker's coordinator of groups. `core` is what every coordinator has: it follows which
partitions of the topic the broker leads, routes each request to the partition of its key, and loads, steps and writes for the
partition's state machine, from election to resignation. `shard_core.GroupShard` is that state machine.

Events into `GroupShard.step(event, now_ms, wall_ms)`:

| event | meaning |
|---|---|
| `Asked` | a member or a client asks: join, sync, heartbeat, leave, commit, delete; a transaction is to be ended (`api`) |
| `Written` | the fate of an append: NONE when it is below the high watermark |
| `MetadataChanged`, `TopicsDeleted` | topics were created, deleted or grown; configs of groups changed |
| `Tick` | time has passed; every step looks at the deadlines |

The output has `answers`, to be given at once, and `appends`, each with a token that comes back in `Written`, in the order of
the appends. What must be durable before it is said is answered by a later step.

    output = shard.step(Asked(request_id, request), now_ms, wall_ms)
    for answer in output.answers:
        waiting.pop(answer.request_id).set_result(...)
    for append in output.appends:                   # acks=all, through replication/manager
        replicas.append(partition, append.records, on_done=lambda error: step(Written(append.token, error)))
    arm_timer(shard.next_deadline_ms())

| room | what it has |
|---|---|
| `core/` | the driver, the loader, effects and deadlines of any shard |
| `classic/` | groups of the classic protocol: generations, joins and syncs; a member makes the assignment |
| `transactions/` | transactional ids: another shard over the same `core`, with a coordinator of its own |
| `modern/` | groups of KIP-848: the coordinator assigns and reconciles; moving between the protocols |
| `offsets` | committed and pending offsets, their expiry, the offsets of open transactions |
| `records`, `modern/records`, `consumer_protocol` | Kafka's record formats in the topic, and the members' metadata |

The memory of a shard may be ahead of its log; it always equals what a replay of its records gives. A client is never told of a
commit or an assignment that the next coordinator will not read. The core never waits, reads no clock, and never looks into an
assignment of the classic protocol. The behaviours are CP-25 to CP-41 and CG of docs/spec/groups.md, and docs/GROUPS.md tells
how a group moves.
"""
