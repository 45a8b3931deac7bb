"""Company data from the French registries: requests, jobs per SIREN, sources, snapshots."""
