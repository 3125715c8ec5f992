"""Log directories of brokers, read from outside of any broker: what lies in them, and the batches in their segment files."""
