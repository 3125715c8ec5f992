"""Workloads that a seed may have beside the producers, consumers and the administrator that every seed has.

Each module has one workload and a function `visit`, which returns its clients: none when the seed does not draw the workload. A
workload takes a random stream of its own, so that a seed without it runs as if the workload did not exist.
"""

from __future__ import annotations
