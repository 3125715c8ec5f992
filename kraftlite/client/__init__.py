"""A blocking Kafka client: connections with TLS and SASL, leaders and coordinators, and how long a call goes on trying.

| room | what it has |
|---|---|
| `settings`, `properties` | everything that a client must know, and how it is read from Kafka's option names |
| `connection`, `security` | one connection to one broker: frames, TLS, SASL |
| `routing` | which broker to ask, and how long: `Routing`, `RetryBudget` |
| `kafka_client` | `KafkaClient`, for records in raw batches, as Spark's tasks need it |
| `cluster` | `ClusterClient`, for administrators: a request to any broker, a certain one, the leaders, or the coordinators |
| `drain`, `moves`, `voters` | a broker that leaves, where its replicas go, and controllers that come and leave |
| `admin`, `groups`, `transactions` | what administrators ask, as functions on a `ClusterClient` |
| `errors` | ClientError and its kinds |

    with ClusterClient(settings_from({"bootstrap.servers": "localhost:9092"})) as cluster:
        for group, found in describe_groups(cluster, ["orders"]).items():
            print(group, found if isinstance(found, ClientError) else found.state)
"""
