"""Lightning callbacks, one class a file."""
