"""Cost: what runs cost, what for, and what their providers charged."""
