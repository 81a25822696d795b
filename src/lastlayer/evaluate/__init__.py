"""Training: feeding streams to heads, one or thousands at once."""
