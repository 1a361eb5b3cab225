"""The explorer: a small server on this machine, and the page that it serves."""
