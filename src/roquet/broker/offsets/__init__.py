"""What groups have consumed: consumer offsets, delay offsets, lag.

May import of `broker`: config, delivery, metadata.
"""
