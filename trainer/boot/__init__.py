"""Boot: what happens on a box before the ranks start; the machine is checked, packages are installed."""
