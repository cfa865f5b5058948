"""The transcript of a run: what its launcher asked, heard, saw and decided, line by line, and read again."""
