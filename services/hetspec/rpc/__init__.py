import os

# gRPC's core writes lines of its own to standard error, among ours; it reads this when it is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
