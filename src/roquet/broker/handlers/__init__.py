"""Request in, response out: one module per conversation.

May import of `broker`: config, delivery, maintenance, metadata, metrics, offsets, transactions.
"""
