"""Listeners that come, move and go while brokers run."""

from __future__ import annotations

from kraftlite.broker.lifecycle_core import BrokerLifecycleCore
from kraftlite.broker.lifecycle_driver import BrokerLifecycle
from kraftlite.node.client_listeners import ClientListeners
from tests.sim.mutants.catalog import mutant
from tests.sim.mutants.patching import Patch


@mutant("listeners-are-not-told", "a broker with other listeners does not register again", expects=("97",))
def listeners_are_not_told(patch: Patch) -> None:
    """Apache Kafka 4.3 as it is: the socket is open, and no client of it finds a broker before a restart."""
    patch.edit(BrokerLifecycle, "listeners_changed", ("self._step(ResendRegistration())", "pass"))


@mutant(
    "change-behind-a-registration",
    "what changes while a registration is outstanding is not registered after it",
    expects=("97",),
)
def change_behind_a_registration(patch: Patch) -> None:
    """CB-06, ML-25: the answer to the old registration was taken for one to the new."""
    patch.edit(BrokerLifecycleCore, "step", ("self._again = self._registering", "pass"))


@mutant("restart-forgets-listeners", "a broker starts with the listeners of its file, whatever was stored", expects=("97",))
def restart_forgets_listeners(patch: Patch) -> None:
    """CB-06, KAFKA-16126's class: a dynamic value that was in the log before the start has no effect."""
    patch.edit(ClientListeners, "prepare", ("self._follow(values)", "pass"))
