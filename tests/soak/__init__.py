"""Long runs, by hand or by `make soak`."""
