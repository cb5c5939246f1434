"""Tools for a store directory that need no broker: check, list, dump, statistics, rebuild.

May import: protocol, storage.
"""
