"""Pool: machines that are held for several runs, each on a slot of one."""
