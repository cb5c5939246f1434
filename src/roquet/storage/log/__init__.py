"""The commit log: append, read, holes, and the tail that recovery saves and truncates.

May import of `storage`: files.
"""
