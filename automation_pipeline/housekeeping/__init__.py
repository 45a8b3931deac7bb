"""Going through all rooms for what is older than it is kept. Each room knows itself which of its rows may go."""
