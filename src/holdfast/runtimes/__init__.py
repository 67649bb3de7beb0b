"""What answers a message: a Python callable, a command, a pydantic-ai agent."""
