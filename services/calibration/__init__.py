"""A running system measured, so that its machine can be emulated: what `hetspec calibrate` does."""
