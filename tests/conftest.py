"""Settings of every test."""

import signal

import grpc.aio
from hypothesis import settings

# The first call of a kernel compiles it: an example's time says nothing.
settings.register_profile("hetspec", deadline=None)
settings.load_profile("hetspec")

# A shell that starts the tests in the background has them ignore Ctrl-C, and with them every process that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# gRPC shuts its event queue down with the last channel or server of a process and makes it anew for the next one, and
# the two race (grpc/grpc#43364). A service has a server all its life; so have the tests, in effect, from here on.
grpc.aio.init_grpc_aio()
