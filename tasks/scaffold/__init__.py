"""The files that `tasks.new_language` and `tasks.new_job` write."""
