"""The API for programs: one table of methods behind every transport."""
