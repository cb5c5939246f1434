"""Requests of administration tools and of slaves."""
