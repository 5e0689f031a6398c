"""Makes everything that the daemon shows: the view, the counters, the warnings, the log lines."""
