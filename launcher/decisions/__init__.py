"""What to do about money, time, machines and evidence. Pure functions: the moment is an argument."""
