"""The one log layer, for data and metadata: record batches, segments, indexes, epochs, producer state, recovery."""
