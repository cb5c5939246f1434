"""Delayed messages: each level is delivered when it is due, by a clock that nobody sets.

May import of `broker`: config, delivery, offsets.
"""
