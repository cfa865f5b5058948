"""Text from nouns: pure functions, for people and (`documents`) for programs."""
