"""Simulated hosts: nodes that share a process, each on ports that can be killed, paused, cut, starved and power-cut.

A `host.SimHost` is what a machine is to one node. It runs the production node over its incarnations; the disk and the
configuration stay, everything else is new at each `boot`. The test library (`testing`) and the simulator (`sim`) are built on
it; docs/SIMULATED-HOSTS.md has the reasons.

| fault | call | what the node keeps |
|---|---|---|
| SIGKILL | `SimHost.kill()` | everything that it wrote: the page cache survives |
| power cut | `SimHost.power_cut(rng)` | what was synced; the rest is gone, or torn as `rng` decides |
| SIGSTOP, SIGCONT | `SimHost.pause()`, `resume()` | everything; its time goes on, and nothing of it runs |
| partition, slow or lossy link | `SimNetwork.cut()`, `refuse()`, `reset()`, `Link` | |
| failing or full disk | `MemDisk.inject()` | |
| drifting clock | `SimHost.rate_ppm` | |

    network = SimNetwork(loop, rng, outside)
    host = SimHost(loop=loop, network=network, config=config, wall_ms=wall_ms, ...)
    host.boot()                                     # a new process id; every callback and task of the node carries it
    host.kill(); host.boot()                        # another incarnation on the same disk
    host.pause(); ...; host.resume()                # the loop holds the callbacks of that process id
    network.cut(a, b, one_way=True); network.heal()

| module | its part |
|---|---|
| `process` | the process id in the context of every callback, and what a loop needs to hold one process |
| `clock`, `disk`, `inodes`, `network`, `tasks` | the ports: `Clock`, `Disk`, `Transport` and `Tasks` in memory |
| `real_time_loop` | a loop with real time and real client sockets that can pause one process |

A killed incarnation is cut off from disk, network, timers and clients' sockets in one step; whatever its tasks still do on
their way out reaches nobody. A host never changes the node's code or configuration, and never decides when a fault happens: its
caller does.
"""
