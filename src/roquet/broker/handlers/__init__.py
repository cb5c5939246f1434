"""Request handlers of the broker: each module answers the requests of one subject.

May import of `broker`: config, delivery, maintenance, metadata, metrics, offsets, transactions.
"""
