"""Schedules at work: which occurrences are due, and the writes that fire, add, change and remove them."""
