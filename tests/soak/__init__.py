"""Long runs: each module measures one guarantee and prints its figure; `run.py` runs them all."""
