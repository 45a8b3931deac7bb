"""Transcription: the recordings of a fiche become text, word by word, and chunks that audits can
cite."""
