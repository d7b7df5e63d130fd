"""Settings of every test."""

import signal

from hypothesis import settings

# The first call of a kernel compiles it: an example's time says nothing.
settings.register_profile("hetspec", deadline=None)
settings.load_profile("hetspec")

# A shell that starts the tests in the background has them ignore Ctrl-C, and with them every process that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
