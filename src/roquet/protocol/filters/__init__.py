"""Filters of subscriptions: tags, SQL92 expressions, bloom filters.

May import of `protocol`: records.
"""
