"""The clients of the company registers."""
