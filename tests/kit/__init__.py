"""What tests are made of; README.md says what there is."""
