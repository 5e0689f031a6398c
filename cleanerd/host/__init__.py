"""This machine: its clock and its memory."""
