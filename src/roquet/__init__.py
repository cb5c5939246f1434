"""roquet: Apache RocketMQ in Python."""
