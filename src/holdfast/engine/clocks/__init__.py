"""Clocks that jump, drift apart or stand still, and the time to trust."""
