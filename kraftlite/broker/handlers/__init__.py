"""The answers of a broker, in domain terms: one module per family of APIs. The wire adapts Kafka's messages to these."""
