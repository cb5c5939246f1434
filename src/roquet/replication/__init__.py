"""HA: the master's commit log, byte for byte, at its slaves.

See docs/storage/replication.md.
"""
