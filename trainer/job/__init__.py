"""Job: what a training's job file says, and how it becomes a program. No torch."""
