"""Helpers of several test directories: encoders, log directories, the kernel's reference."""
