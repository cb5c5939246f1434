"""Sends and pulls that look like earlier ones of the same connection, handled by a cached plan.

A fast path does what the general path does for the same frames; property tests compare the two.
"""
