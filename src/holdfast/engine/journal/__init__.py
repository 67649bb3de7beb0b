"""What a program leaves in the ledger: the keys of its steps, their encoded results, and artifacts."""
