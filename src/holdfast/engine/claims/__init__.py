"""Which process may run which run: claims, leases, and proof that a process is alive."""
