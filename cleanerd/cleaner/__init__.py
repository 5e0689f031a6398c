"""One cleaning: plan, index, decide, rewrite, stage, verify."""
