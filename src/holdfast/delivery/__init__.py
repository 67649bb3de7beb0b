"""Sends answers and notices to people, once each."""
