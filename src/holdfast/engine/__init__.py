"""What Holdfast does with tasks. Knows the store's contract, never its backend."""
