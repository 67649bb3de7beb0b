"""Work that others execute and Holdfast records: the calls of producers, and the answers of runtimes."""
