"""The broker: requests in, answers out, and what happens by itself."""
