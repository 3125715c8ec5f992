"""TLS: key and trust stores, contexts made of Kafka's settings, and a transport that encrypts what another one carries.

Used by the listeners of clients, by the connections between nodes, and by the client. Nothing here knows Kafka's protocol or
gRPC.
"""
