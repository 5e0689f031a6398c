"""Looks at log directories, a thread for each: what there is, what changed, how the daemon may work there."""
