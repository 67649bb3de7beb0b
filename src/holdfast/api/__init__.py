"""The door for programs: one table of methods behind every wire."""
