"""What can be done with fiches."""
