"""Scores, one file a family. Every score knows its mode, its counts, its direction and its floor."""
