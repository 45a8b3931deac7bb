"""Audits in Dagster: the jobs of one fiche and of a rerun, the asset of a day, and the sweep."""
