"""The invariants of behaviours, "Invariants", one file each; stepped after every event of a simulated run."""
