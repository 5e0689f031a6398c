"""The tested combinations: ``make compatibility`` runs the matrix and writes docs/compatibility.md."""
