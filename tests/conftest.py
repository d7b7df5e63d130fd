"""Settings of every test."""

from hypothesis import settings

# The first call of a kernel compiles it: an example's time says nothing.
settings.register_profile("hetspec", deadline=None)
settings.load_profile("hetspec")
