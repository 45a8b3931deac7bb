"""What jobs of this system do: each type by a stage of the room that it is about. They implement org_jobs' port."""
