"""Row to domain and back, in symmetric pairs.

Rows come in the order of the table's columns, which both databases share (a test compares them).
"""
