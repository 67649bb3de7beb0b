"""Alerts: rules over figures, what they raise, and what is done about it."""
