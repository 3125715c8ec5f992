"""Kafka's client protocol at the edge: frames, codecs, and the APIs that a broker offers. Nothing below this knows the wire."""
