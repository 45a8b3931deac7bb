"""Audits: transcripts judged against control points by a language model, with evidence that the
transcripts contain."""
