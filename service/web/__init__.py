"""HTTP plumbing that knows no nouns: problems, strict JSON, conditional requests, cursors."""
