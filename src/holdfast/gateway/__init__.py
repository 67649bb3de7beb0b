"""The long-lived process: boot, serve, drain, restart."""
