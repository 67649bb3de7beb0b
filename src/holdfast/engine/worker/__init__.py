"""What carries runs in one process: takes them, executes them, drains."""
