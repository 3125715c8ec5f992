"""The one log layer, for data and for metadata: record batches, segments, indexes, epochs, producer state, recovery.

`log.Log` is the facade: offsets [log_start_offset, leo) in one directory, in Kafka's own file formats. It has one owner, on one
loop. Every method but `flush` is synchronous and works on the page cache.

| part | what it does |
|---|---|
| `appends`, `validation`, `scan`, `codecs` | appends as leader or as follower; checks of clients' batches |
| `producers`, `producer_snapshots`, `producer_reload` | resends, gaps, fenced epochs, open transactions |
| `guards` | transactional batches about which a coordinator is being asked |
| `epochs`, `epoch_file`, `truncation` | where each leader epoch starts; cutting the log where it diverged |
| `rolling`, `segment`, `segments`, `indexes` | segment files and their indexes |
| `reads`, `stored` | reads by offset and by time; records that stay in their file until a socket takes them |
| `flusher`, `flushes`, `checkpoints` | making things durable, and knowing how far |
| `opening`, `recovery`, `promises`, `statements`, `leftovers` | opening after a crash; what the log must hold |
| `retention`, `deletion` | removing whole segments |
| `cleaner`, `cleaned`, `compaction` | rewriting segments with the newest record of each key |
| `batch`, `control`, `config`, `context`, `directory` | formats; topic configs; what the parts share |

A log from its opening to its end:

    log = Log(OpenLog(disk=disk, directory=directory, tp=tp, ...))     # recovers behind the recovery point
    info = log.append_as_leader(batch, leader_epoch=epoch, ...)        # or append_as_follower; ApiError: nothing has changed
    log.update_hw(offset)                                              # the owner decides; consumers read below it
    found = log.find(offset, max_bytes, up_to=log.hw)                  # positions, not copies
    log.truncate_to(offset)                                            # a follower that diverged; Fault below a quorum's HW
    log.maybe_roll(wall_ms); log.delete_segments_before(offset)        # rolling and retention
    await log.flush()                                                  # durable up to the leo of the call
    log.close()                                                        # everything durable: the next start is a clean one

Invariant: log_start_offset <= last_stable_offset <= hw <= leo, and recovery_point <= leo; everything below the recovery point
is durable. `Log.check()` asserts it.

Errors: ApiError is a refusal. OSError is the disk's, and after one from a write the owner must take the directory offline.
`LogDamaged` says that the files contradict a promise. A log never moves its own high watermark, never knows leaders or
replicas, and never unpacks a batch of a follower or of recovery beyond its header and CRC. The behaviours are LG of
docs/spec/log.md and TP of docs/spec/transactions-partitions.md; docs/ON-DISK.md describes the files.
"""
