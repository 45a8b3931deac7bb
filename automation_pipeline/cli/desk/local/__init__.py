"""Commands done here: by the stages, on the database that this process's environment names."""
