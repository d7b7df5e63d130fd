"""Emulated hardware: what a task costs in time and energy on devices that are described, not at hand."""
