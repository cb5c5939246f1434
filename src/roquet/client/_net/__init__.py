"""A client's session: routes, name servers, heartbeats, group members, calls to brokers.

May import of `client`: received.
"""
