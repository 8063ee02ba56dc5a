"""Pictures of populations."""
