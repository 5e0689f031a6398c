"""What is shipped around the program: units, images, examples, the wheel."""
