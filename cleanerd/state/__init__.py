"""State that cleanerd keeps between runs, in its state directory. It is a hint: the log decides."""
