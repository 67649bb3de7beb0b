"""Campaigns: create them, add items, start items under their limits, pause, resume and retry."""
