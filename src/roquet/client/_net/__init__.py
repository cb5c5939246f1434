"""The session of a client: connections, routes, heartbeats, calls to brokers and from them.

May import of `client`: config, hook, metrics, received.
"""
