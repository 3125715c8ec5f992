"""What becomes of the trace: log lines, a timeline file, and Prometheus metrics."""
