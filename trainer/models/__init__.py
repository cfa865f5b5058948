"""The models that the onboard trainer can train."""
