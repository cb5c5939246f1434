"""Retention, deletion of queues, a failed drive, registration with the name servers.

May import of `broker`: config, delay, delivery.
"""
