"""The nodes' wire: gRPC transport, and the codec between message dataclasses and protobuf. The only importer of grpc."""
