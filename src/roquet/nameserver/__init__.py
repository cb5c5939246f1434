"""The name server: brokers register their topics, clients ask for routes.

May import: protocol, transport.
"""
