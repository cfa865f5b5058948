"""Distributed: the ranks of one training; who each is, how they form a group, agree, stop and end."""
