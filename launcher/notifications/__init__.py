"""Notifications: which are due, and their delivery, each once."""
