"""What endpoints take and answer, where no room has a value of that shape."""
