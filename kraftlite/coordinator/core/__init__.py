"""The part that every coordinator has: one state machine, the shard, for each partition of its topic that this broker leads.

| module | what it has |
|---|---|
| `shards` | what a shard is: asked, told the fate of its appends, told the time; and the events that say so |
| `effects`, `deadlines` | what the parts of a shard share: its answers and appends, its times |
| `walks` | work on many keys, a piece in each step |
| `keys` | how much memory the keys take that clients choose |
| `loader` | reads the partition into a new shard, up to where the log ended at the election, below the high watermark |
| `shard_driver` | one led partition in one leader epoch: loads, steps, appends, answers |
| `load_times` | how long loads took, for the metrics |
| `led_partitions` | which partitions of the topic this broker leads, as the metadata says; routes a key to its partition |

A shard never waits and does no I/O. Its memory may be ahead of its log; it always equals what a replay of its records gives.
"""

from __future__ import annotations
