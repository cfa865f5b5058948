"""What only a GPU can show, by `make gpu`: checks and figures, each in a process and a time limit of its own.

`python -m tests.gpu` needs what the trainer needs and nothing else: no pytest, no network. The same
checks are tests: marked `gpu` where there is one, and on a CPU, where they show that they work themselves.
"""
