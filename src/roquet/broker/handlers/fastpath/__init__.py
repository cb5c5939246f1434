"""The fast paths: sends and pulls whose headers match a template cached for their connection.

A fast path does exactly what the slow path does for the same frames; property tests compare the
two byte for byte.
"""
