"""The audit: what segment files, replicas beside each other and a history of acknowledged records say about what a cluster holds.

It needs no Spark and no broker. `partition` runs all checks of one partition, `findings` names what they find.
"""
