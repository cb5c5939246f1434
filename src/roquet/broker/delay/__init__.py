"""Delivers delayed messages when they are due, by a monotonic clock.

May import of `broker`: config, delivery, offsets.
"""
