"""What kvstored does, shown on real input."""
