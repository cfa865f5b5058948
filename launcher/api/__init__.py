"""The Python API: what `import vastrun` offers on the user's computer, shared with the commands."""
