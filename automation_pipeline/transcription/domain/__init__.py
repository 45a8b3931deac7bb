"""What a transcript is and how it is cut into chunks."""
