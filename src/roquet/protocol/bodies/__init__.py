"""Request and response bodies in JSON: routes, tables, heartbeats, HA status.

May import of `protocol`: filters, json, records.
"""
