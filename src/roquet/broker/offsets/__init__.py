"""Consumer offsets, delay offsets, lag of consumer groups.

May import of `broker`: config, delivery, metadata.
"""
