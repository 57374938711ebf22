"""What writes the generated pages, and the pages."""
