"""The name server: brokers register their topics with it, clients ask it for routes.

May import: protocol, transport.
"""
