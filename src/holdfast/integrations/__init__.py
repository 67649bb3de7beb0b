"""Bridges to other gateways and frameworks. Each is optional and independent of the others."""
