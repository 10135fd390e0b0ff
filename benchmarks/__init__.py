"""What is measured, never asserted: run these by hand."""
