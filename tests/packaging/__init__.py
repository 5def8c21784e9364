"""What is installed from a wheel, in empty environments."""
