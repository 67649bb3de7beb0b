"""Things that start themselves."""
