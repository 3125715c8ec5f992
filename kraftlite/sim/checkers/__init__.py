"""The invariants of docs/spec/invariants.md, one file each; stepped after every event of a simulated run."""
