"""SOCKETS: asyncio connections and servers that speak remoting, for servers and clients.

May import: protocol.
"""
