"""The commit log: append, read, damaged ranges, the tail that recovery saves and cuts off.

May import of `storage`: files.
"""
