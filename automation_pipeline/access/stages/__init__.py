"""What can be done with machine tokens, one verb a module."""
