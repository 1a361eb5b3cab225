"""A model as one file, for people and programs that have no neurosql."""
