"""Benches: Holdfast side by side with the raw database, on the same machine, in the same run."""
