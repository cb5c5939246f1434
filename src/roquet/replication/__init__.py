"""HA: the master's commit log, byte for byte, on its slaves.

See docs/storage/replication.md.

May import: storage.
"""
