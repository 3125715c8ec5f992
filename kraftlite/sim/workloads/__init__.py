"""Workloads that a run may have beside the producers, consumers and the administrator that every run has.

Each has a function `visit`, which yields its clients, and the theme whose runs have it (`visits`). The stranger comes to every
theme, in a third of the seeds. A workload takes a random stream of its own, so that a run without it is as if it did not exist.
"""

from __future__ import annotations
