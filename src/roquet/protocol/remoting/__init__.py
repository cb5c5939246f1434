"""Remoting frames: header in JSON or binary form, request and response codes, signatures.

May import of `protocol`: json.
"""
