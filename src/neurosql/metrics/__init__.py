"""Scores, one file per family. Every score has its mode, its counts, its direction and a figure to compare it with."""
