"""What can be done about transcripts: one verb a module. Each is safe to repeat."""
