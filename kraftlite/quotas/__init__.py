"""Bounds of clients and of replication: which quota applies, how usage is measured, how long to wait. Pure: every time is an
argument."""
