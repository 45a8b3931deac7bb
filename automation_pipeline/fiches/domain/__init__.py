"""What a fiche is and what a fetch can end in."""
