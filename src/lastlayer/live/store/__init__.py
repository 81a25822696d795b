"""What a live head keeps on disk: its head, a journal, and copies of both."""
