"""What cleanerd was tried on: ``make compatibility`` runs the matrix and writes docs/compatibility.md."""
