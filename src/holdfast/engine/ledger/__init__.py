"""Create, finish, cancel, read and forget tasks."""
