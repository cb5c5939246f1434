"""SOCKETS: asyncio around protocol, for servers and clients alike."""
