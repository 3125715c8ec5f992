"""Faults put into the protocol at run time, each a mistake that systems like this have really had: does the simulator find them?

A mutant changes one rule of production code in the process that runs the simulation; production has no branch for it.
`python -m tests.sim.mutants` runs each with seed after seed until a checker, the liveness phase or a crash catches it. One that
survives says that a checker or a kind of fault is missing.
"""
