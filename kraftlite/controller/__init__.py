"""The KRaft controller: a replicated state machine over the metadata log, and the decisions that write that log."""
