"""Boot: checks of the machine and installation of packages before the ranks start."""
