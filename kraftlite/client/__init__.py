"""A blocking Kafka client: connections with TLS and SASL, leaders and coordinators, and how long a call goes on trying."""
