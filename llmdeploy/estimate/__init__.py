"""What one explicit launch would take and give: memory, KV tokens, fits or not, speed."""
