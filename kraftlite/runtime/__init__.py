"""The ground on which drivers run: ports, the trace vocabulary, and turns for long work."""
