"""The broker as a replica: copies of the master's tables, promotion, rejoin, queries to replicas.

May import of `broker`: component_configs, config, delivery, metadata, offsets, tables.
"""
