"""What a type checker must refuse: each line that is marked is an error of the code that stands there."""
# ruff: noqa

from kraftlite.testing import Cluster, SyncCluster, other_than
from kraftlite.testing import Nonsense  # [attr-defined]


def wrong(c: SyncCluster, d: Cluster) -> None:
    c.leader(7)  # [arg-type]
    c.leader("t").bit_length()  # [union-attr]
    c.leeder("t")  # [attr-defined]
    c.kill("4")  # [arg-type]
    c.wait_for(leader=4)  # [call-overload]
    c.wait_for(controller=other_than(1)).isr  # [attr-defined]
    SyncCluster(controller=1)  # [call-arg]
    d.wait_for(topic="t", hw=1).isr  # [attr-defined]
