"""A structured fuzzer over every door of a node: client requests, gRPC, metrics, files, configuration. See docs/TESTING.md."""
