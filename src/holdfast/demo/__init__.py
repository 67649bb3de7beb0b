"""The demo: kill a process full of work, let another resume it, and prove from the ledger what happened."""
