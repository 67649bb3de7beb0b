"""Work that starts by the clock."""
