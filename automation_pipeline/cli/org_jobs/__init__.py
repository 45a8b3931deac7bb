"""`automation org-jobs`: schedules, jobs and queues of organisations, at the desk that was chosen."""
