"""Sessions and the gRPC services: who may talk to the store, and how."""
