"""The paper's experiments, and ours, as data: a declaration each, a queue that runs them, and tables."""
