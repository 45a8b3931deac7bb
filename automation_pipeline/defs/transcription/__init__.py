"""Transcription in Dagster: the job of one fiche, the asset of a day, and the sweep."""
