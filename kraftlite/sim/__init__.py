"""The whole cluster in one process on virtual time, with faults chosen by a seed, and the checks that watch it.

A run is a function of its plan: the same seed gives the same events in any process. `run.run(plan, checkers)` returns a
`RunResult`.

    shape = draw(seed)                              # nodes, configuration, topics (`shape`)
    boot all nodes, create topics                   # production nodes on simulated hosts (`cluster`, `simhost`)
    while the safety phase lasts:                   # virtual time: the loop jumps to the next timer (`loop`)
        workload: produce, consume, administer      # `workload`, `client`, `service`; what they saw is `history`
        stranger: malformed and late requests       # `stranger`, in a third of the seeds
        injector: the faults that are due           # `fault_plan`, `schedule`, `scenes`, `injector`, `injection`
        checkers: after every callback of a node    # `checkers`: one invariant a file
    heal everything                                 # the liveness phase
    demand that the cluster converges and that every call gets its verdict
    read all logs, and check the history against them

| outcome | exit status | meaning |
|---|---|---|
| `OK` | 0 | every check holds |
| `CRASH` | 3 | a node ended itself, or the simulator broke |
| `SAFETY` | 4 | a checker reported a violation |
| `LIVENESS` | 5 | the healed cluster did not converge, or a call got no verdict |

| callback of a checker (`checkers.base`) | when |
|---|---|
| `on_event` | a node emitted a trace event, hot ones included |
| `on_step` | a callback of a node's process ran |
| `on_boot`, `on_death` | an incarnation begins or ends |
| `on_call`, `on_arrival`, `on_served`, `on_answer` | a message leaves, reaches its handler, is answered, its answer arrives |
| `unsettled`, `at_end` | the liveness phase asks what is missing; the cluster has converged |

A failing run is shrunk to the faults that it needs (`shrink`) and told as a story by `kraftlite explain`'s code. `swarm` runs
many seeds on all cores, and `coverage` counts what they reached. `checkers.model` replays the metadata log a second time,
independently of `metadata` and `controller`.

A checker changes nothing of the world, and no simulated node can tell that it is simulated. Not simulated are clients' bytes,
gRPC and threads. docs/TESTING.md tells how to use it, and CONTRIBUTING.md how to add a fault, a checker or a mutant.
"""
