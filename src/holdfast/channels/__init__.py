"""Where people talk to agents."""
