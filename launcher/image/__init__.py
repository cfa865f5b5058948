"""Images: built, pushed and locked by digest; each part needs Docker only where it says so."""
