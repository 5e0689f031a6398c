"""One cleaning: survey, plan, index, decide, rewrite, stage, verify."""
