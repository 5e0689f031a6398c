"""What cleanerd remembers between runs, in its state directory. Hints: the log decides."""
