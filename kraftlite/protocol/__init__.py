"""Kafka's protocol as both of its sides know it: primitive types, messages by kio's schemas, and what carries records by hand."""
