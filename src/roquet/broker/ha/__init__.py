"""The broker as a replica: tables copied from the master, promotion, rejoin, other masters of the name.

May import of `broker`: component_configs, config, metadata, offsets.
"""
