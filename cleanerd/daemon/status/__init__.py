"""Makes what the daemon shows: the view, the counters, the warnings, the lines of its log."""
