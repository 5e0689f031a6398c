"""Tests of cleanerd; the folders mirror the package."""
