"""A process full of work is killed half-way, another goes on, and the ledger proves what happened."""
