"""Turns the trace into log lines, a timeline file, and Prometheus metrics."""
