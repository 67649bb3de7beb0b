"""Telling people what happened, once."""
