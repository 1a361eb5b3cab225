"""Pictures and the page of a run."""
