"""Requests of simulated clients beyond those that every client makes (`kraftlite.sim.service`): one module for each workload.

Each module has the methods with their questions and answers, and a function `routes`, which binds them to the production handlers
of a broker.
"""

from __future__ import annotations
