"""Pure decisions about audits: what is asked of the model, what of its answer holds, and what the score is."""
