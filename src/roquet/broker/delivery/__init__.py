"""Decides when sends are acknowledged and held pulls are answered; holds the queue locks.

May import of `broker`: config.
"""
