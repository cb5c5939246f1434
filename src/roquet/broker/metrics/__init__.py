"""Statistics by topic and group, rates, runtime information.

May import of `broker`: config, metadata, offsets.
"""
