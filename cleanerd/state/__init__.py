"""State that cleanerd stores between runs, in its state directory. It is a hint: the log decides."""
