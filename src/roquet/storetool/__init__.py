"""A store directory without a broker: check, list, dump, statistics, rebuild of queues and index.

May import: protocol, storage.
"""
