"""Filters of subscriptions: tags, SQL92 expressions, bloom filters.

May import of `protocol`: java_numbers, records.
"""
