"""The Spark source without a broker (`scan=segments`): the same queries, answered from log directories."""
