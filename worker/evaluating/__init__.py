"""What evaluate reads, runs and draws."""
