"""The state of all partitions, and which of them is cleaned next. No file, no clock, no thread."""
