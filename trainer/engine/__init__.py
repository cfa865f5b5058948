"""What a rank trains with: the session, one optimiser step, and what each step is made of."""
