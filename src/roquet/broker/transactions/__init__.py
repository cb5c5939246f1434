"""Half messages, open transactions, check-backs to producers.

May import of `broker`: config, delay, delivery, metadata, offsets.
"""
