"""What of a host keeps cleanerd from its work: checks, and what they find. Reads only; ``cli/doctor.py`` shows it."""
