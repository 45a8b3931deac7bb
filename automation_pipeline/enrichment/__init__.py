"""Companies, filled from the French registries: requests, jobs a SIREN, sources, snapshots."""
