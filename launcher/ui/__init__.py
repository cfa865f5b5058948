"""What the user sees and is asked: the screen, Ctrl-C, notifications, and text and JSON from nouns."""
