"""Transcription turns the recordings of a fiche into text, and into chunks that audits cite."""
