"""Keeps the ledger honest: an audit that finds what is wrong, and a sweep that repairs it."""
