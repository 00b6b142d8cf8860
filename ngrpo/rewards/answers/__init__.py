"""Whether two written answers say the same."""
