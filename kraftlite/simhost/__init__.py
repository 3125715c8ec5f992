"""Nodes that share a process, and what can be done to them: network, disks and clocks that fail on demand."""
