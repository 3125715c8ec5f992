"""Faults that a running node causes to itself: its network, its disk, its wall clock, and what it answers to clients.

The parts stand where the ports of the real machine stand, and are not there when no fault is: a fault shadows methods of an
object by attributes of the same names, and its end removes them. Only a node with `kraftlite.faults.enable=true` has them.
"""
