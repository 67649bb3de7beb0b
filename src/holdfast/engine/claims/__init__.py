"""Which process may carry which run: claims, leases, and proof that a process lives."""
