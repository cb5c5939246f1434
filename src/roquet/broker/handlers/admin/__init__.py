"""Handlers of the requests that admin tools and slaves send."""
