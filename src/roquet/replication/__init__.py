"""Replication (HA): slaves copy the master's commit log byte for byte.

See docs/storage/replication.md.

May import: storage.
"""
