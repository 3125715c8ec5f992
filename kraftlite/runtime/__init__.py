"""What a driver runs on: ports, the trace vocabulary, and the actor loop."""
