"""Notifications: which are due, each sent once, and their delivery."""
