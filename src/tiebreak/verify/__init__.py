"""The main job: properties over backends, mutants, and the report of what was found."""
