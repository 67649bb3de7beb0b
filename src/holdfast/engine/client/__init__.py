"""What the code that starts tasks holds: handles, waiting for an end, and what a task waits for."""
