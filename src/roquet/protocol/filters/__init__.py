"""Which messages a subscription wants: tags, SQL92 expressions, bloom filters.

May import of `protocol`: java_numbers, records.
"""
