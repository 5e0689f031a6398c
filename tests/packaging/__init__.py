"""Everything shipped with the program: units, images, examples, the wheel."""
