"""Audits: transcripts judged against control points by a language model, with evidence that is
really there."""
