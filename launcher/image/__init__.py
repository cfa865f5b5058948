"""Images: built, pushed, locked by digest and verified; each part needs Docker only where it says so."""
