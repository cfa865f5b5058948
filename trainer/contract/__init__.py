"""The contract between launcher and box: files, their fields and types. The launcher sees this part only."""
