"""SOCKETS: asyncio connections that speak remoting, shared by servers and clients.

May import: protocol.
"""
