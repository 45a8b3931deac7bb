"""Queries of transcription: runs, tasks, transcripts, and what people ask."""
